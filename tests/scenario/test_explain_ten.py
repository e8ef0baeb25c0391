"""Twelve services that have no place, each with its true cause and something that, applied, gives it one."""

from __future__ import annotations

import pytest

from beeyard.core.demand import Demand, PoolColumn
from beeyard.core.model import HostPort, Platform
from beeyard.core.placement import PlacementIndex
from beeyard.core.states import Availability, NodeState
from beeyard.core.volume import VolumeUse
from tests.support.builders import CPU, GIB, a_link, a_node
from tests.support.counterfactual import applied
from tests.support.volumes import a_mount, a_volume


def a_yard() -> PlacementIndex:
    """Two racks of three hosts with 4 cores, 8 GiB and a pool each; in r2 one is drained, one down; r1 has the only GPU.

    On every host that takes tasks runs one of service `web`, with 2 cores and port 80.
    """
    index = PlacementIndex()
    for number in range(1, 7):
        rack = "r1" if number <= 3 else "r2"
        index.set_node(
            a_node(
                f"n{number}",
                hostname=f"yard{number}",
                labels={"rack": rack},
                availability=Availability.DRAIN if number == 5 else Availability.ACTIVE,
                state=NodeState.DOWN if number == 6 else NodeState.READY,
                generic={"gpu": 1} if number == 1 else {},
                architecture="aarch64" if number == 4 else "x86_64",
                log_drivers=["local"],
                volume_drivers=["dir"],
                links=[a_link("eth0")] if rack == "r1" else [a_link("eth1")],
            )
        )
    pools = [
        PoolColumn("p1", "lan-r1", "eth0", "node.labels.rack==r1", 0),
        PoolColumn("p2", "lan-r2", "eth1", "node.labels.rack==r2", 1),
    ]
    index.set_network("lan", "macvlan", pools, name="lan")
    index.volumes.set(a_volume("v0", sharing="none"))
    index.hold("db", Demand("db", volumes=(a_mount("data-v0"),)), "n1", volumes=(_use_of(index),))
    for number in range(1, 5):
        web = Demand("web", cpu_nano=2 * CPU, memory_bytes=GIB, host_ports=(HostPort(port=80),))
        index.hold(f"web{number}", web, f"n{number}")
    return index


def _use_of(index: PlacementIndex) -> VolumeUse:
    uses = index.volumes.choose((a_mount("data-v0"),), "n1")
    assert uses is not None
    return uses[0]


R1 = "node.labels.rack==r1"
AWAY = "; 2 nodes not available for new tasks"
DRAINED, DOWN = "node yard5 ready, which is drained: 1 node", "node yard6 ready, which is down: 1 node"

# Demand; what `docker service ps` says; what would help, smallest first.
CASES = {
    "a rack that is not there": (
        Demand("s", constraints=("node.labels.rack==r9",)),
        f"no suitable node (scheduling constraints not satisfied on 4 nodes{AWAY})",
        ["without constraint node.labels.rack==r9: 4 nodes"],
    ),
    "half a core too much": (
        Demand("s", cpu_nano=2 * CPU + CPU // 2, constraints=(R1,)),
        f"no suitable node (insufficient resources on 4 nodes{AWAY})",
        ["0.5 CPU less: 3 nodes"],
    ),
    "a second GPU": (
        Demand("s", generic=(("gpu", 2),)),
        f"no suitable node (insufficient resources on 4 nodes{AWAY})",
        ["1 gpu less: 1 node"],
    ),
    "a pool without addresses": (
        Demand("s", network_ids=("lan",), constraints=(R1,)),
        "no suitable node (no address left in pool lan-r1 on 3 nodes; 2 nodes not available for new tasks; "
        "scheduling constraints not satisfied on 1 node)",
        [
            "1 address more in lan-r1: 3 nodes",
            "without constraint node.labels.rack==r1: 1 node",
            "without network lan: 3 nodes",
        ],
    ),
    "an architecture that is elsewhere": (
        Demand("s", platforms=(Platform(architecture="arm64", os="linux"),), constraints=(R1,)),
        f"no suitable node (unsupported platform on 3 nodes{AWAY}; scheduling constraints not satisfied on 1 node)",
        ["without constraint node.labels.rack==r1: 1 node", "platform linux/x86_64 too: 3 nodes"],
    ),
    "a log driver that no node has": (
        Demand("s", log_driver="syslog"),
        f"no suitable node (missing plugin on 4 nodes: log driver syslog{AWAY})",
        ["without log driver syslog: 4 nodes"],
    ),
    "a port that is taken everywhere": (
        Demand("s", host_ports=(HostPort(port=80),)),
        f"no suitable node (host-mode port already in use on 4 nodes{AWAY})",
        [DRAINED, "another port than 80/tcp: 4 nodes", DOWN],
    ),
    "one on each node and no node left": (
        Demand("web", max_replicas_per_node=1),
        f"no suitable node (max replicas per node limit exceed{AWAY})",
        [DRAINED, DOWN, "2 instead of 1 tasks of the service on a node: 4 nodes"],
    ),
    "a host that is drained": (
        Demand("s", constraints=("node.hostname==yard5",)),
        f"no suitable node (scheduling constraints not satisfied on 4 nodes{AWAY})",
        [DRAINED, "without constraint node.hostname==yard5: 4 nodes"],
    ),
    "a volume that another task has": (
        Demand("s", volumes=(a_mount("data-v0"),)),
        f"no suitable node (cannot fulfill requested CSI volume mounts on 4 nodes{AWAY})",
        ["without volume data-v0: 4 nodes"],
    ),
    "an image that nobody runs, in a rack": (
        Demand("s", image="nginx", constraints=(R1,)),
        f"no suitable node (missing executor for image nginx on 4 nodes{AWAY})",
        ["image host instead of nginx: 3 nodes"],
    ),
    "too much memory and the wrong rack": (
        Demand("s", memory_bytes=8 * GIB, constraints=("node.labels.rack==r9",)),
        f"no suitable node (insufficient resources on 4 nodes{AWAY})",
        [
            "1 GiB memory less and without constraint node.labels.rack==r9: 4 nodes",
            "node yard5 ready, which is drained and without constraint node.labels.rack==r9: 1 node",
            "node yard6 ready, which is down and without constraint node.labels.rack==r9: 1 node",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_and_what_helps_helps(case: str) -> None:
    demand, sentence, helps = CASES[case]
    index = a_yard()
    explanation = index.explainer.explain(demand)
    assert explanation.sentence == sentence
    assert [relaxation.text for relaxation in explanation.relaxations] == helps
    assert helps
    for number, relaxation in enumerate(explanation.relaxations):
        yard = applied(index, relaxation)
        (placed,) = yard.place(relaxation.demand, [f"new{number}"]).placed
        assert relaxation.n_nodes > 1 or (placed.node_id,) == relaxation.node_ids
    # Without any of it there is still no place.
    assert index.place(demand, ["now"]).unplaced == 1
