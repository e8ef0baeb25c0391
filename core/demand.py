"""What a placement is asked with and what it answers: see `core.placement`.

There are as many of these as tasks and none can be part of a cycle, so the garbage collector leaves them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from beeyard.core.model import HOST_NETWORK_ID, HostPort, Platform, Task
from beeyard.core.mounts import VolumeMount
from beeyard.core.preference import Preference
from beeyard.core.resources import AMOUNT_MAX
from beeyard.core.volume import VolumeUse

if TYPE_CHECKING:
    from beeyard.core.filters import Ask

ReasonCount = tuple[str, str, int]  # (Reason, detail, number of nodes)

COUNT_MAX = (1 << 31) - 1  # what an int32 column counts to


class Demand(msgspec.Struct, frozen=True, gc=False):
    """All of a task that matters for where it fits; tasks with equal demands are placed as one group."""

    service_id: str
    cpu_nano: int = 0
    memory_bytes: int = 0
    constraints: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    image: str = ""
    network_ids: tuple[str, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    max_replicas_per_node: int = 0
    # Addresses of this very task, at most one a family, on the only one of its networks that has pools. It goes to a node
    # with a pool whose subnets have them; nobody else can get them, so the pool needs no free address.
    pins: tuple[str, ...] = ()
    forwards_ports: bool = False  # ports of the node have to lead to the task
    generic: tuple[tuple[str, int], ...] = ()  # how many of each kind, in order of the kinds
    log_driver: str = ""
    volume_drivers: tuple[str, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    preferences: tuple[Preference, ...] = ()
    strategy: str = ""  # "": the cluster's
    spec_version: int = 0  # what failed before failed with this version; 0: nothing is known
    node_id: str = ""  # the only node it may go to; "": any

    @classmethod
    def of(cls, task: Task) -> Demand:
        """What a task demands."""
        spec = task.spec
        return cls(
            service_id=task.service_id,
            cpu_nano=spec.reservations.cpu_nano,
            memory_bytes=spec.reservations.memory_bytes,
            constraints=spec.constraints,
            platforms=spec.platforms,
            image=spec.image,
            network_ids=spec.network_ids,
            host_ports=spec.host_ports,
            max_replicas_per_node=spec.max_replicas_per_node,
            pins=task.pins,
            forwards_ports=bool(spec.ports) and HOST_NETWORK_ID not in spec.network_ids,
            generic=spec.reservations.generic_amounts,
            log_driver=spec.log_driver.name,
            volume_drivers=spec.volume_drivers,
            volumes=spec.volumes,
            preferences=spec.preferences,
            strategy=task.strategy,
            spec_version=task.spec_version,
            node_id=task.bound_node_id,
        )

    @property
    def plugins(self) -> tuple[tuple[str, str], ...]:
        """What its node must have beside its networks' drivers: kind, "log" or "volume", and name."""
        log = (("log", self.log_driver),) if self.log_driver else ()
        return (*(("volume", driver) for driver in self.volume_drivers), *log)

    @property
    def amounts(self) -> tuple[int, int]:
        """CPU and memory as the kernel counts them. What no node has stays more than any node has, however large it is."""
        cpu_nano, memory_bytes = self.cpu_nano, self.memory_bytes
        if 0 <= cpu_nano <= AMOUNT_MAX and 0 <= memory_bytes <= AMOUNT_MAX:
            return cpu_nano, memory_bytes
        return max(0, min(cpu_nano, AMOUNT_MAX)), max(0, min(memory_bytes, AMOUNT_MAX))

    @property
    def replicas_limit(self) -> int:
        """`max_replicas_per_node` as the kernel counts it."""
        return min(self.max_replicas_per_node, COUNT_MAX)

    def of_any_service(self) -> Demand:
        """The same for whoever only asks where it fits: what decides between nodes that fit does not matter to that, and
        the service matters to the limit of replicas per node alone.
        """
        service_id = self.service_id if self.max_replicas_per_node else ""
        return msgspec.structs.replace(self, service_id=service_id, spec_version=0, strategy="", preferences=())

    def for_these(self, uses: Sequence[VolumeUse]) -> Demand:
        """The same for the very volumes that a task was given."""
        if not uses:
            return self
        mounts = tuple(VolumeMount(source=use.name, target=use.target, read_only=use.read_only) for use in uses)
        return msgspec.structs.replace(self, volumes=mounts)


class PoolColumn(msgspec.Struct, frozen=True):
    """A pool of a network."""

    pool_id: str
    name: str
    parent: str
    nodes: str  # constraints separated by commas; "": all nodes
    free: int  # what may be handed out now
    kind: str = "macvlan"  # of the link on the parent, see `core.parent_links`
    subnets: tuple[str, ...] = ()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a task goes. `pool_ids`: one for each network of the demand that has pools, in the demand's order."""

    node_id: str
    pool_ids: tuple[str, ...] = ()
    volumes: tuple[VolumeUse, ...] = ()  # one for each mount of the demand


class Findings:
    """What `PlacementIndex.feasible` has found out, for whoever asks about many tasks while nothing changes in the index.

    Tasks of one node with the same demand get the same answer: each is asked about without its own hold, and those are equal.
    """

    __slots__ = ("answers", "asks")

    def __init__(self) -> None:
        self.answers: dict[tuple[object, ...], str] = {}
        self.asks: dict[tuple[int, bool], Ask] = {}  # by identity of the demand, which a hold keeps alive


class Decision(msgspec.Struct, frozen=True):
    """The outcome for a group: the first tasks are placed in the order they were given, the last are not."""

    placed: list[Placed]
    unplaced: int
    reasons: list[
        ReasonCount
    ]  # (Reason, detail, nodes) for the tasks left, most frequent first; empty when none is left
    explanation: str  # "no suitable node (…)", "" when none is left


__all__ = ["AMOUNT_MAX", "Decision", "Demand", "Findings", "Placed", "PoolColumn", "ReasonCount"]
