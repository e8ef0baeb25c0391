"""Machines that nobody registered have addresses of a pool: what becomes of the tasks, and of the addresses."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.desire import TAKEN_MAX
from beeyard.manager.config import ManagerConfig
from beeyard.manager.hooks.aside import SAME_MACHINE_MAX
from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.sim_parts import FakeParts
from tests.sim.api import Refused as ApiRefused
from tests.support.small_cluster import MANAGER, SmallCluster, a_small_cluster, addresses

MAC = "02:00:00:00:00:99"
# Longer than a freed address rests (30 s), and short: each virtual minute of a cluster costs real time.
CONFIG = ManagerConfig(put_aside_s=90.0)


def strangers(cluster: SmallCluster, *taken: str) -> None:
    """From now on exactly these addresses are answered for by a machine that is no host of the cluster."""
    for name in cluster.agents:
        cluster.parts(name).kernel.neighbours.mac_of = dict.fromkeys(taken, MAC).get


def put_aside(shown: dict[str, Any]) -> list[tuple[str, str]]:
    """Addresses and MAC addresses of what a pool's state says is put aside."""
    return [(aside["Address"], aside["MacAddress"]) for aside in shown.get("PutAside", [])]


async def pool(cluster: SmallCluster) -> dict[str, Any]:
    """The state of the one pool."""
    shown: dict[str, Any] = (await cluster.api.call("GET", "/networks/lan"))["Status"]["IPAM"]["Pools"]["lan"]
    return shown


async def restart_manager(cluster: SmallCluster) -> None:
    """Its next life has all agents back."""
    cluster.world.crash(MANAGER)
    cluster.world.restart(MANAGER)
    await cluster.until(lambda nodes: all(n["Status"]["State"] == "ready" for n in nodes), "/nodes")


async def test_a_task_gets_another_address_and_the_one_that_is_taken_is_put_aside(autojump_clock: MockClock) -> None:
    """Also with restart condition none; everybody can see whose address it is, and it comes back when the time is over."""
    async with a_small_cluster(config=CONFIG) as cluster:
        await cluster.network("10.77.0.0/29", "fd77::/125")
        strangers(cluster, "10.77.0.1", "fd77::1")
        service = await cluster.service(RestartPolicy={"Condition": "none"})
        refused, running = await cluster.running(1)
        assert (addresses(refused), addresses(running)) == (["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"])
        assert (refused["Status"]["State"], refused["Status"]["Err"]) == (
            "rejected",
            f"address 10.77.0.1 is in use on eth0 by {MAC}, address fd77::1 is in use on eth0 by {MAC}: "
            "they are put aside",
        )
        shown = await pool(cluster)
        assert put_aside(shown) == [("10.77.0.1", MAC), ("fd77::1", MAC)]
        assert (shown["Total"], shown["Used"], shown["Cooling"], shown["Free"]) == (6, 1, 1, 4)
        warnings = (await cluster.api.call("GET", "/info"))["Warnings"]
        assert [w.partition(", as node a")[0] for w in warnings] == [
            f"address {address} is in use outside the cluster by {MAC}" for address in ("10.77.0.1", "fd77::1")
        ]
        await cluster.scale(service, 6)
        await cluster.running(5)
        strangers(cluster)
        await cluster.running(6, timeout_s=100.0)
        assert "PutAside" not in await pool(cluster)
        assert (await cluster.api.call("GET", "/info"))["Warnings"] == []


async def test_a_new_manager_knows_what_was_put_aside(autojump_clock: MockClock) -> None:
    """It reads it from the stored task, and gives the address to nobody for the rest of the time."""
    async with a_small_cluster(config=CONFIG) as cluster:
        await cluster.network("10.77.0.0/29")
        strangers(cluster, "10.77.0.1")
        service = await cluster.service()
        await cluster.running(1)
        await trio.sleep(30)
        await restart_manager(cluster)
        assert put_aside(await pool(cluster)) == [("10.77.0.1", MAC)]
        strangers(cluster)
        await cluster.scale(service, 6)
        await trio.sleep(30)
        # The first task is the one that was refused.
        assert "10.77.0.1" not in [a for task in (await cluster.running(5))[1:] for a in addresses(task)]
        tasks = await cluster.running(6, timeout_s=60)
        assert [addresses(task) for task in tasks][-1] == ["10.77.0.1"]


async def test_somebody_who_answers_for_everything_closes_the_pool(autojump_clock: MockClock) -> None:
    """A few addresses are tried and no more; everybody can see why; once he is silent and they are taken back, all run.

    A new manager knows both: what was put aside, and what was taken back.
    """
    async with a_small_cluster() as cluster:
        await cluster.network("10.77.0.0/24")
        strangers(cluster, *(f"10.77.0.{number}" for number in range(256)))
        await cluster.service(2)
        await trio.sleep(30)
        words = (
            f"{MAC} outside the cluster answers for {SAME_MACHINE_MAX} addresses of pool lan, as a router with proxy ARP "
            "does, so no more are tried; silence it, then run: beeyard pool release lan"
        )
        for restarted in (False, True):
            if restarted:
                await restart_manager(cluster)
            shown = await pool(cluster)
            assert len(put_aside(shown)) == SAME_MACHINE_MAX
            assert shown["Closed"] == words
            assert (await cluster.api.call("GET", "/info"))["Warnings"][0] == words
            waiting = [task for task in await cluster.running(0) if task["Status"]["State"] == "pending"]
            assert [task["Status"]["Err"].endswith(f"; {words}") for task in waiting] == [True, True]
        strangers(cluster, "10.77.0.1", "10.77.0.2")
        named = ["10.77.0.3", "10.77.0.4"]
        released = await cluster.api.call("POST", "/networks/lan/release", {"Addresses": named})
        assert sorted(released["Released"]) == named
        await cluster.running(2)
        assert "Closed" not in await pool(cluster)
        await restart_manager(cluster)
        left = sorted(address for address, _ in put_aside(await pool(cluster)))
        assert left == [f"10.77.0.{number}" for number in (1, 2, *range(5, SAME_MACHINE_MAX + 1))]
        assert sorted((await cluster.api.call("POST", "/networks/lan/release", {}))["Released"]) == left
        assert put_aside(await pool(cluster)) == []


async def test_what_is_not_put_aside_is_not_taken_back(autojump_clock: MockClock) -> None:
    """Each of the addresses that are named must be."""
    async with a_small_cluster("a1") as cluster:
        await cluster.network("10.77.0.0/29")
        for address, sentence in (
            ("10.77.0.2", "10.77.0.2 is not put aside in network lan"),
            ("nas", "give addresses such as 10.0.4.7"),
        ):
            with pytest.raises(ApiRefused, match=sentence):
                await cluster.api.call("POST", "/networks/lan/release", {"Addresses": [address]})


async def test_many_strangers_do_not_have_the_pool_tried_in_seconds(autojump_clock: MockClock) -> None:
    """Some addresses at once, then one a delay; once it is quiet the service comes up with what is left."""
    async with a_small_cluster("a1") as cluster:
        await cluster.network("10.77.0.0/24")
        cluster.parts("a1").kernel.neighbours.mac_of = lambda address: (
            f"02:00:00:00:00:{int(address.rpartition('.')[2]):02x}"
        )
        await cluster.service()
        await trio.sleep(30)
        n_tried = len(put_aside(await pool(cluster)))
        # The default restart delay is 5 s.
        assert TAKEN_MAX < n_tried < TAKEN_MAX + 9
        strangers(cluster)
        await cluster.running(1)


async def test_strangers_neither_use_up_attempts_nor_give_more_of_them(autojump_clock: MockClock) -> None:
    """One attempt is allowed: two tasks run and fail, however many are refused before and between, and that is all."""
    parts = functools.partial(FakeParts, script=lambda task: Behaviour(run_s=0.5, exit_code=1))
    async with a_small_cluster(config=CONFIG, parts=parts) as cluster:
        await cluster.network("10.77.0.0/24")
        strangers(cluster, *(f"10.77.0.{number}" for number in (1, 2, 3, 5, 6, 7)))
        await cluster.service(RestartPolicy={"Condition": "any", "MaxAttempts": 1, "Delay": 10**9})
        await trio.sleep(60)
        tasks = await cluster.running(0)
        failed = [addresses(task) for task in tasks if task["Status"]["State"] == "failed"]
        assert failed == [["10.77.0.4"], ["10.77.0.8"]]
        # What was refused has a history of its own, of the same length.
        assert [task["Status"]["State"] for task in tasks].count("rejected") == 2


async def test_a_pinned_address_that_is_taken_is_waited_for(autojump_clock: MockClock) -> None:
    """The slot's next task says whose it is and waits, without a loop; it gets that address when the time is over."""
    async with a_small_cluster(config=CONFIG) as cluster:
        await cluster.network("10.77.0.0/24")
        strangers(cluster, "10.77.0.64")
        labels = {"beeyard.addresses": "10.77.0.64-10.77.0.65", "beeyard.on-isolation": "fence"}
        await cluster.service(2, labels=labels)
        await cluster.running(1)
        await trio.sleep(40)
        strangers(cluster)
        tasks = await cluster.running(1)
        assert sorted(task["Status"]["State"] for task in tasks) == ["pending", "rejected", "running"]
        (waiting,) = [task for task in tasks if task["Status"]["State"] == "pending"]
        assert (
            f"address 10.77.0.64, which {MAC} outside the cluster has and which is put aside"
            in waiting["Status"]["Err"]
        )
        tasks = await cluster.running(2, timeout_s=100.0)
        assert sorted(addresses(task)[0] for task in tasks) == ["10.77.0.64", "10.77.0.64", "10.77.0.65"]
