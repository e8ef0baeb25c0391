"""A manager that writes down what it decides, with agents and over a crash: all of it is decided the same again."""

from __future__ import annotations

import trio

from beeyard.core.replay import Replay, replay
from beeyard.manager.config import ManagerConfig
from tests.support.small_cluster import MANAGER, SmallCluster, a_small_cluster

CONFIG = ManagerConfig(decision_log_mib=8, strategy="pack")


def replayed(cluster: SmallCluster) -> list[Replay]:
    """What comes of each log on the manager's disk, in their order."""
    disk = cluster.world.machines[MANAGER].disk
    paths = sorted(path for path in disk.paths() if path.endswith(".decisions"))
    assert all(path.startswith(f"{CONFIG.state_dir}/decisions/") for path in paths)
    return [replay(disk.read(path) or b"") for path in paths]


async def test_decisions_of_a_running_manager_are_recorded_and_come_out_the_same(autojump_clock: object) -> None:
    """Placed, scaled, drained, crashed and begun anew: each life has a log, which is whole in itself."""
    async with a_small_cluster(config=CONFIG) as cluster:
        await cluster.network("10.77.0.0/24")
        web = await cluster.service(4)
        await cluster.running(4)
        await cluster.scale(web, 6)
        tasks = await cluster.running(6)
        node = await cluster.api.insist("GET", f"/nodes/{tasks[0]['NodeID']}")
        drained = {**node["Spec"], "Availability": "drain"}
        await cluster.api.call("POST", f"/nodes/{node['ID']}/update", drained, version=node["Version"]["Index"])
        await cluster.running(6)
        await trio.sleep(5)
        (first,) = replayed(cluster)
        assert first.difference == ""
        assert first.n_tasks >= 7  # six, and those that were on the node
        cluster.world.crash(MANAGER)
        cluster.world.restart(MANAGER)
        await cluster.until(lambda nodes: all(n["Status"]["State"] == "ready" for n in nodes), "/nodes")
        await cluster.scale(web, 9)
        await cluster.running(9)
        await trio.sleep(5)
        again, second = replayed(cluster)
        assert again == first
        assert (second.difference, second.n_tasks) == ("", 3)
