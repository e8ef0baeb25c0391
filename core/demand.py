"""What a placement is asked with and what it answers: see `core.placement`.

There are as many of these as tasks and none can be part of a cycle, so the garbage collector leaves them alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beeyard.core.model import HOST_NETWORK_ID, HostPort, Node, Platform, Task

if TYPE_CHECKING:
    from beeyard.core.filters import Ask

ReasonCount = tuple[str, str, int]  # (Reason, detail, number of nodes)

# More CPU (1e-9 cores) or memory (bytes) than any node has: 9 million cores, 8 PiB; x86-64 and arm64 address 4 PiB. The
# kernel counts in int64, which a thousand such amounts on one node still fit into.
AMOUNT_MAX = 1 << 53
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
        )

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
        """The same for whoever only asks where it fits: the service matters to the limit of replicas per node alone."""
        return self if self.max_replicas_per_node else msgspec.structs.replace(self, service_id="")


class PoolColumn(msgspec.Struct, frozen=True):
    """A pool of a network."""

    pool_id: str
    name: str
    parent: str
    nodes: str  # constraints separated by commas; "": all nodes
    free: int  # what may be handed out now
    kind: str = "macvlan"  # of the link on the parent, see `core.parent_links`
    subnets: tuple[str, ...] = ()


def room_of(node: Node) -> tuple[int, int]:
    """What a node has, as the kernel counts it: less than `AMOUNT_MAX`, so that who asks for that much fits nowhere."""
    resources = node.description.resources
    most = AMOUNT_MAX - 1
    return max(0, min(resources.cpu_nano, most)), max(0, min(resources.memory_bytes, most))


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a task goes. `pool_ids`: one for each network of the demand that has pools, in the demand's order."""

    node_id: str
    pool_ids: tuple[str, ...] = ()


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


__all__ = ["AMOUNT_MAX", "Decision", "Demand", "Findings", "Placed", "PoolColumn", "ReasonCount", "room_of"]
