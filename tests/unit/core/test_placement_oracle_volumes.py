"""Placement with cluster volumes, failures and tasks bound to a node against plain Python, on random histories."""

from __future__ import annotations

import hashlib

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.demand import Findings
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.states import NodeState
from beeyard.core.volume import Published, PublishState, Volume
from tests.reference.placement_oracle import PlacementOracle
from tests.support.builders import a_node
from tests.support.examples import examples
from tests.support.volumes import a_mount, a_volume

NODE_IDS = [f"n{number}" for number in range(5)]
SOURCES = ["data-v0", "data-v1", "data-v2", "group:g", "group:g", "group:h", "gone"]

rooms = st.integers(0, 6)
mounts = st.builds(a_mount, st.sampled_from(SOURCES), read_only=st.booleans())
demands = st.builds(
    Demand,
    service_id=st.sampled_from(["s1", "s2"]),
    cpu_nano=st.sampled_from([0, 1]),
    max_replicas_per_node=st.sampled_from([0, 0, 2]),
    volumes=st.lists(mounts, max_size=3).map(tuple),
    spec_version=st.sampled_from([1, 1, 2]),
    node_id=st.sampled_from(["", "", "", "n1", "n4"]),
)
volumes = st.builds(
    a_volume,
    st.sampled_from([f"v{number}" for number in range(4)]),
    group=st.sampled_from(["", "g", "g", "h"]),
    scope=st.sampled_from(["single", "multi", "multi"]),
    sharing=st.sampled_from(["none", "readonly", "onewriter", "all", "all"]),
    driver=st.sampled_from(["", "", "dir"]),
    requisite=st.sampled_from([(), (), ({"rack": "r1"},), ({"rack": "r0", "zone": "z"}, {"rack": "r1"})]),
    availability=st.sampled_from(["active"] * 5 + ["pause"]),
    published=st.sampled_from([()] * 4 + [(Published(node_id="n1", state=PublishState.PUBLISHED),)]),
)


class Twins:
    """The index and its oracle, given the same calls."""

    def __init__(self) -> None:
        tie_break = {n: int.from_bytes(hashlib.blake2b(n.encode(), digest_size=8).digest(), "little") for n in NODE_IDS}
        self.index, self.oracle = PlacementIndex(), PlacementOracle(tie_break)
        self.number = 0

    def set_node(self, number: int, room: int, *, ready: bool = True) -> None:
        node = a_node(
            f"n{number}",
            cpu_nano=room,
            labels={"rack": f"r{number % 2}"},
            engine_labels={"zone": "z"} if number < 3 else {},
            state=NodeState.READY if ready else NodeState.DOWN,
        )
        drivers = ("dir",) if number != 2 else ()
        node = msgspec.structs.replace(
            node, description=msgspec.structs.replace(node.description, volume_drivers=drivers)
        )
        self.index.set_node(node)
        self.oracle.nodes[node.id] = node

    def set_volume(self, volume: Volume) -> None:
        self.index.volumes.set(volume)
        self.oracle.volumes.volumes[volume.id] = volume

    def place(self, demand: Demand, n: int, masked: list[str]) -> None:
        task_ids = [f"t{self.number + i}" for i in range(n)]
        self.number += n
        expected = self.oracle.place(demand, task_ids, masked)
        actual = self.index.place(demand, task_ids, masked=masked, now_s=self.oracle.now_s)
        assert [placed.node_id for placed in actual.placed] == [node_id for node_id, _ in expected]
        for task_id, placed in zip(task_ids, actual.placed, strict=False):
            assert [use.volume_id for use in placed.volumes] == self.oracle.holds[task_id].volume_ids
        counts = self.oracle.reasons(demand, masked) if actual.unplaced else {}
        if demand.node_id and demand.node_id not in self.oracle.nodes:
            assert actual.explanation == f"node {demand.node_id} is not known"
        else:
            assert counts == {(reason, detail): n for reason, detail, n in actual.reasons}

    def drop(self, task_id: str) -> None:
        self.index.drop(task_id)
        del self.oracle.holds[task_id]

    def fail(self, service_id: str, version: int, node_id: str, times: int) -> None:
        for _ in range(times):
            self.index.note_failure(service_id, version, node_id, self.oracle.now_s)
            self.oracle.failures.append((service_id, version, node_id, self.oracle.now_s))

    def check(self, demand: Demand) -> None:
        """A demand that is new fits on the same nodes; one that is placed stays feasible as long as its volumes do,
        also when what was found for others is used again.
        """
        findings = Findings()
        for node_id in self.oracle.nodes:
            refusal = self.oracle.refusal(demand, node_id)
            assert (refusal is None) == (self.index.feasible(demand, node_id) == ""), (refusal, node_id)
        for task_id, held in list(self.oracle.holds.items())[-4:]:
            by_id = self.oracle.volumes.volumes
            names = [by_id[volume_id].name for volume_id in held.volume_ids]
            pairs = zip(names, held.demand.volumes, strict=True)
            exact = tuple(msgspec.structs.replace(mount, source=name) for name, mount in pairs)
            held.demand, wanted = msgspec.structs.replace(held.demand, volumes=exact), held.demand
            known = held.node_id in self.oracle.nodes
            refusal = self.oracle.feasible(held.demand, held.node_id, task_id) if known else ("unknown_node", "")
            held.demand = wanted
            for asked in (Findings(), findings):
                said = self.index.feasible(wanted, held.node_id, task_id=task_id, findings=asked)
                assert (refusal is None) == (said == ""), (refusal, said)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_any_history_is_placed_as_by_plain_python(data: st.DataObject) -> None:
    twins = Twins()
    for number in range(data.draw(st.integers(1, len(NODE_IDS)))):
        twins.set_node(number, data.draw(rooms))
    for volume in data.draw(st.lists(volumes, max_size=5)):
        twins.set_volume(volume)
    for _ in range(data.draw(st.integers(1, 8))):
        demand = data.draw(demands)
        action = data.draw(
            st.sampled_from(["place", "place", "place", "node", "volume", "drop", "fail", "fail", "time"])
        )
        if action == "place":
            twins.place(
                demand, data.draw(st.integers(1, 8)), data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=1))
            )
        elif action == "node":
            twins.set_node(data.draw(st.integers(0, 4)), data.draw(rooms), ready=data.draw(st.booleans()))
        elif action == "volume":
            twins.set_volume(data.draw(volumes))
        elif action == "fail":
            times = data.draw(st.integers(3, 7))
            twins.fail(demand.service_id, demand.spec_version, data.draw(st.sampled_from(NODE_IDS)), times)
        elif action == "time":
            twins.oracle.now_s += data.draw(st.sampled_from([1.0, 299.0, 300.0]))
        elif twins.oracle.holds:
            twins.drop(data.draw(st.sampled_from(list(twins.oracle.holds))))
        twins.check(demand)
