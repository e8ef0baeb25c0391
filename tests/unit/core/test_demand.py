"""What of a task a placement is asked with."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.demand import Demand
from beeyard.core.model import HostPort, Platform, PublishedPort
from beeyard.core.mounts import Mount, VolumeMount
from beeyard.core.preference import Preference
from tests.support.builders import CPU, GIB, a_task, a_task_spec


def test_demand_is_what_a_task_asks_for() -> None:
    spec = a_task_spec(
        cpu_nano=CPU,
        memory_bytes=GIB,
        constraints=["node.role==worker"],
        platforms=[Platform(os="linux")],
        network_ids=["net1"],
        ports=[PublishedPort(target=8000, published=80), PublishedPort(target=9000)],
        max_replicas_per_node=2,
        generic={"gpu": 2, "apple": 1},
        preferences=[Preference(descriptor="node.labels.rack")],
        log_driver="syslog",
        mounts=[
            Mount(type="volume", source="data", target="/a", driver="nfs"),
            Mount(type="volume", source="data", target="/b", driver="local"),
            Mount(type="bind", source="/nfs/ceph", target="/c", driver=""),
            Mount(type="cluster", source="group:db", target="/d", read_only=True),
        ],
    )
    demand = Demand.of(a_task(spec=spec, service_id="s9", spec_version=3, strategy="pack"))
    assert msgspec.structs.asdict(demand) == {
        "service_id": "s9",
        "cpu_nano": CPU,
        "memory_bytes": GIB,
        "constraints": ("node.role==worker",),
        "platforms": (Platform(os="linux"),),
        "image": "host",
        "network_ids": ("net1",),
        "host_ports": (HostPort(port=80),),
        "max_replicas_per_node": 2,
        "forwards_ports": True,
        "pins": (),
        "generic": (("apple", 1), ("gpu", 2)),
        "log_driver": "syslog",
        "volume_drivers": ("nfs",),
        "volumes": (VolumeMount(source="group:db", target="/d", read_only=True),),
        "preferences": (Preference(descriptor="node.labels.rack"),),
        "strategy": "pack",
        "spec_version": 3,
        "node_id": "",
    }
    assert Demand.of(a_task("t2", spec=spec, service_id="s9", spec_version=3, strategy="pack")) == demand


@pytest.mark.parametrize(("limit", "service_id"), [(0, ""), (2, "s1")])
def test_demand_of_any_service(limit: int, service_id: str) -> None:
    """Whose task it is matters only to the limit of replicas per node; by which rule it is placed, not at all."""
    demand = Demand.of(a_task(spec=a_task_spec(cpu_nano=7, generic={"gpu": 1}, max_replicas_per_node=limit)))
    preferences = (Preference(descriptor="node.labels.rack"),)
    choosy = msgspec.structs.replace(demand, preferences=preferences, strategy="pack", spec_version=4)
    assert choosy.of_any_service() == msgspec.structs.replace(demand, service_id=service_id, spec_version=0)
