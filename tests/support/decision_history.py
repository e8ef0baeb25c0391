"""A long random history of one placement index, the same for the same seed: nodes, networks, volumes and tasks come and go.

    python -m tests.support.decision_history FILE DECISIONS [SEED [NODES]]

writes its decision log. A name that ends in .gz has it compressed, and without packing in batches: that is how the log that
is kept with the tests was made, with seed 7.
"""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

from beeyard.core.demand import Demand
from beeyard.core.model import HostPort, Platform
from beeyard.core.mounts import VolumeMount
from beeyard.core.placement import PlacementIndex, PoolColumn
from beeyard.core.preference import Preference
from beeyard.core.recorded_index import RecordedIndex
from beeyard.core.states import Availability, NodeState
from beeyard.core.volume import VolumeScope, VolumeSharing, VolumeUse
from tests.support.builders import CPU, GIB, a_link, a_node
from tests.support.volumes import a_volume

RACKS = 6
STRATEGIES = ("", "", "", "pack", "shape", "fgd")
PREFERENCES = (
    (),
    (),
    (Preference(descriptor="node.labels.rack"),),
    (Preference(descriptor="node.labels.zone", weights=(("z1", 2),)), Preference(descriptor="node.labels.rack")),
)


def a_use(volume_id: str) -> VolumeUse:
    return VolumeUse(
        volume_id=volume_id, name=f"data-{volume_id}", driver="", source=f"data-{volume_id}", target="/srv"
    )


class History:
    """Tells an index one random thing after another. What is there is kept in lists, so that chance alone decides."""

    def __init__(self, index: PlacementIndex, seed: int, n_nodes: int = 60, *, batches: bool = True) -> None:
        """Args: whether groups are packed together too, which is meant to get better with time."""
        self.index = index
        self.batches = batches
        self.rng = random.Random(seed)
        self.n_nodes = n_nodes
        self.n_tasks = self.n_decisions = self.n_packed = 0
        self.tasks: list[str] = []
        self.ports: list[tuple[str, HostPort]] = []
        self.now_s = 0.0
        for number in range(n_nodes):
            self.node(number)
        self.network()
        for number in range(4):
            self.volume(number)

    def node(self, number: int) -> None:
        rng, cores = self.rng, self.rng.choice([2, 4, 8, 16])
        self.index.set_node(
            a_node(
                f"node{number}",
                labels={"rack": f"r{number % RACKS}", "zone": f"z{number % 3}", "disk": rng.choice(["ssd", "hdd"])},
                cpu_nano=cores * CPU,
                memory_bytes=cores * rng.choice([2, 4]) * GIB,
                state=rng.choice([NodeState.READY] * 9 + [NodeState.DOWN]),
                availability=rng.choice([Availability.ACTIVE] * 9 + [Availability.DRAIN]),
                architecture=rng.choice(["x86_64", "x86_64", "aarch64"]),
                links=(a_link("eth0"), a_link("eth1")),
                link_kinds=("macvlan", "ipvlan"),
                generic=rng.choice([{}, {}, {"gpu": 4}, {"ssd": 2, "gpu": 1}]),
                volume_drivers=("dir",),
                log_drivers=rng.choice([(), ("local",), ("local", "syslog")]),
            )
        )

    def network(self) -> None:
        for name, driver in (("lan", "macvlan"), ("wan", "ipvlan")):
            kind = "macvlan" if driver == "macvlan" else "ipvlan in mode l2"
            pools = [
                PoolColumn(
                    f"{name}{rack}",
                    f"{name}-{rack}",
                    "eth0" if name == "lan" else self.rng.choice(["eth0", "eth1"]),
                    f"node.labels.rack==r{rack}",
                    self.rng.randint(5, 40),
                    kind,
                )
                for rack in range(RACKS)
            ]
            self.index.set_network(name, driver, pools)

    def volume(self, number: int) -> None:
        self.index.volumes.set(
            a_volume(
                f"v{number}",
                group="fast" if number % 2 else "",
                scope=self.rng.choice(list(VolumeScope)),
                sharing=self.rng.choice(list(VolumeSharing)),
            )
        )

    def demand(self) -> Demand:
        rng = self.rng
        rarely = rng.random() < 0.15
        return Demand(
            f"s{rng.randrange(40)}",
            cpu_nano=rng.choice([0, CPU // 10, CPU // 2, CPU]),
            memory_bytes=rng.choice([0, GIB // 4, GIB]),
            constraints=rng.choice(
                [(), (), ("node.labels.disk==ssd",), ("node.labels.rack in (r1, r2)", "node.labels.zone!=z0")]
            ),
            platforms=(Platform(architecture="arm64"),) if rng.random() < 0.1 else (),
            image="host",
            network_ids=rng.choice([(), (), ("lan",), ("wan",), ("lan", "wan")]),
            host_ports=(HostPort(port=8000 + rng.randrange(3)),) if rarely else (),
            max_replicas_per_node=rng.choice([0, 0, 0, 1, 2]),
            generic=(("gpu", 1),) if rng.random() < 0.1 else (),
            log_driver=rng.choice(["", "", "", "syslog"]),
            volumes=(VolumeMount(source=rng.choice(["data-v0", "data-v2", "group:fast"]), target="/srv"),)
            if rarely
            else (),
            preferences=rng.choice(PREFERENCES),
            strategy=rng.choice(STRATEGIES),
            spec_version=1,
        )

    def new_tasks(self, n: int) -> list[str]:
        self.n_tasks += n
        return [f"t{number}" for number in range(self.n_tasks - n, self.n_tasks)]

    def place(self) -> None:
        task_ids = self.new_tasks(self.rng.choice([1, 1, 1, 2, 5, 20]))
        masked = [f"node{self.rng.randrange(self.n_nodes)}"] if self.rng.random() < 0.1 else []
        decision = self.index.place(self.demand(), task_ids, masked=masked, now_s=self.now_s)
        self.tasks += task_ids[: len(decision.placed)]
        self.n_decisions += 1

    def place_many(self) -> None:
        """Groups of all kinds, or such as are packed bin by bin."""
        rng, demands = self.rng, [self.demand() for _ in range(3)]
        if rng.random() < 0.7:
            demands = [
                Demand(
                    one.service_id,
                    cpu_nano=CPU // rng.randint(1, 20),
                    memory_bytes=GIB // rng.randint(1, 20),
                    constraints=one.constraints,
                    strategy="pack",
                    spec_version=1,
                )
                for one in demands
            ]
        groups = [(demand, self.new_tasks(rng.choice([1, 30, 300]))) for demand in demands]
        decisions, report = self.index.place_many(groups, now_s=self.now_s, rounds=rng.choice([0, 20, 200]))
        self.n_packed += report is not None and report.n_tasks > 0
        for (_, task_ids), decision in zip(groups, decisions, strict=True):
            self.tasks += task_ids[: len(decision.placed)]
            self.n_decisions += 1

    def end_tasks(self, most: int) -> None:
        for _ in range(min(self.rng.randint(1, most), len(self.tasks))):
            at = self.rng.randrange(len(self.tasks))
            self.tasks[at], self.tasks[-1] = self.tasks[-1], self.tasks[at]
            self.index.drop(self.tasks.pop())

    def chosen_port(self) -> None:
        if self.ports and self.rng.random() < 0.5:
            node_id, port = self.ports.pop()
            self.index.ports.give(node_id, [port])
        else:
            taken = (f"node{self.rng.randrange(self.n_nodes)}", HostPort(port=8000 + self.rng.randrange(3)))
            self.ports.append(taken)
            self.index.ports.take(taken[0], [taken[1]])

    def step(self) -> None:
        """One thing more."""
        rng, index = self.rng, self.index
        self.now_s += rng.random()
        node = rng.randrange(self.n_nodes)
        what = rng.random()
        if what < 0.55:
            self.place()
        elif what < 0.78:
            self.end_tasks(8)
        elif what < 0.82:
            self.node(node)
        elif what < 0.83:
            index.remove_node(f"node{node}")
        elif what < 0.87 and self.tasks:
            index.settle(rng.choice(self.tasks))
        elif what < 0.90:
            index.set_pool_free(f"lan{rng.randrange(RACKS)}", rng.randint(0, 60))
        elif what < 0.93:
            index.note_failure(f"s{rng.randrange(3)}", 1, f"node{node % 3}", self.now_s)
        elif what < 0.95:
            self.chosen_port()
        elif what < 0.96:
            (task_id,) = self.new_tasks(1)
            self.tasks.append(task_id)
            index.hold(task_id, self.demand(), f"node{node}", links=[("eth1", "ipvlan in mode l2")])
        elif what < 0.97:
            self.volume(rng.randrange(4))
        elif what < 0.973:
            index.volumes.remove(f"v{rng.randrange(4)}")
        elif what < 0.977 and self.tasks:
            index.volumes.reserve(rng.choice(self.tasks), f"node{node}", [a_use(f"v{rng.randrange(4)}")])
            index.volumes.release(next(iter(index.volumes._uses)))
        elif what < 0.98:
            index.remove_network("wan")
            self.network()
        elif what < 0.985 and self.batches:
            self.place_many()
        else:
            self.end_tasks(200)


def recorded(n_decisions: int, seed: int = 1, n_nodes: int = 60, *, batches: bool = True) -> bytes:
    """The log of a history with so many decisions, or one or two more."""
    written: list[bytes] = []
    history = History(RecordedIndex(written.append), seed, n_nodes, batches=batches)
    while history.n_decisions < n_decisions:
        history.step()
    return b"".join(written)


def main() -> None:
    path, n_decisions, *more = sys.argv[1:]
    is_packed = path.endswith(".gz")
    data = recorded(int(n_decisions), *map(int, more), batches=not is_packed)
    # No time of writing in it: the same history is the same file.
    Path(path).write_bytes(gzip.compress(data, mtime=0) if is_packed else data)


if __name__ == "__main__":
    main()
