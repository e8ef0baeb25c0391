"""Builders of what an agent is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beeyard.core.grant import AddressGrant, MappedPort, PortGrant, ResourceGrant
from beeyard.core.model import HOST_NETWORK_ID, TaskSpec
from beeyard.core.resources import GenericResource, Resources
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from tests.support.builders import some_generic


def a_grant(address: str = "10.77.0.64/24", *, network: str = "lan", gateway: str = "10.77.0.1") -> AddressGrant:
    """A macvlan address on eth0 of the host."""
    return AddressGrant(
        id=f"grant-{address}",
        hook="address",
        network_id=f"{network}-id",
        network_name=network,
        pool_id="pool1",
        pool_name="lan-r1",
        segment="s1",
        driver="macvlan",
        parent="eth0",
        addresses=(address,),
        gateways=(gateway,),
    )


def an_assigned(
    task_id: str = "t1",
    *,
    address: str = "",
    slot: int = 1,
    service: str = "web",
    image: str = "host",
    desired: TaskState = TaskState.RUNNING,
    state: TaskState = TaskState.ASSIGNED,
    cpu_nano: int = 0,
    memory_bytes: int = 0,
    lease_s: float = 86400.0,
    fence: bool = False,
    stop_grace_s: float = 10.0,
    ports: Sequence[MappedPort] = (),
    on_host_network: bool = False,
    claims: Mapping[str, int | Sequence[str]] | None = None,
) -> AssignedTask:
    """An assignment of a task that runs `sleep`; with `address` it is attached to network `lan`."""
    return AssignedTask(
        id=task_id,
        service_id=f"{service}-id",
        service_name=service,
        slot=slot,
        spec=TaskSpec(
            image=image,
            args=("sleep", "inf"),
            network_ids=(HOST_NETWORK_ID,) if on_host_network else ("lan-id",) if address else (),
            reservations=Resources(
                cpu_nano=cpu_nano,
                memory_bytes=memory_bytes,
                generic=tuple(
                    GenericResource(kind=claim.kind, value=claim.amount) for claim in some_generic(claims or {})
                ),
            ),
            stop_grace_s=stop_grace_s,
        ),
        desired_state=desired,
        grants=(
            *((a_grant(address),) if address else ()),
            *((PortGrant(id=f"ports-{task_id}", hook="port", ports=tuple(ports)),) if ports else ()),
            *((ResourceGrant(id=f"claim-{task_id}", hook="claim", resources=some_generic(claims)),) if claims else ()),
        ),
        state=state,
        lease_s=lease_s,
        fence=fence,
    )
