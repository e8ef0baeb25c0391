"""What the API needs to know beyond the store: the manager's live state, as a Protocol that the daemon implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from beeyard.core.address_pool import PoolUsage
from beeyard.core.model import Network, Task
from beeyard.core.placement import PlacementIndex
from beeyard.core.resources import Room
from beeyard.core.states import Role
from beeyard.manager.published import PublishedLists


class PutAside(NamedTuple):
    """An address that a machine outside the cluster has."""

    address: str  # without prefix length
    mac: str
    node: str  # hostname of the node that found it
    until_at_s: float  # by the wall clock


class TokenSource(Protocol):
    """The token service as the API sees it."""

    def new_url(self) -> str:
        """A discovery URL with a new token."""


class Packing(NamedTuple):
    """Of batches that were packed bin by bin."""

    n_batches: int
    n_tasks: int
    opened: int  # by the last one: nodes that were empty and have tasks now
    # Kind of resource, nodes that any packing opens for it, and by what part the last one opened more; None if that is none.
    by_kind: Sequence[tuple[str, int, float | None]]


class ManagerStatus(Protocol):
    """The running manager as the API sees it. Everything but the rotation answers at once."""

    @property
    def address(self) -> str:
        """Where agents reach this manager: "10.99.0.1:2377", with or without "tcp://" in front."""

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences for `docker info`, such as why replacing tasks is held back; empty when all is well."""

    def join_token(self, role: Role) -> str:
        """The token with which a node gets this role."""

    async def rotate_join_token(self, role: Role) -> str:
        """Make the token of a role invalid and give its successor.

        Raises:
            DiskError: the old one is still valid.
        """

    def room(self, node_id: str) -> Room | None:
        """What a node has for tasks and what of it is free; None for one that is not known (yet)."""

    def placement(self) -> PlacementIndex:
        """What decisions are made on, as it is now. To be asked, not changed; good until the next checkpoint."""

    @property
    def packing(self) -> Packing:
        """How well tasks were packed that waited in large numbers."""

    def refusing(self, task: Task) -> Sequence[str]:
        """Ids of the nodes on which hooks refused the tasks of this one's group a while ago."""

    def pool_usage(self, pool_id: str) -> PoolUsage | None:
        """How full a pool is now; None for one that is not known (yet)."""

    def put_aside(self, pool_id: str) -> Sequence[PutAside]:
        """Addresses of a pool that strangers have, in the order in which they were found."""

    def closed_pool(self, pool_id: str) -> str:
        """Why no more addresses of a pool are tried: a stranger answers for too many; "" when they are."""

    async def take_back(self, found: Mapping[str, Sequence[str]]) -> None:
        """Give addresses that are put aside to tasks again, by pool id.

        Raises:
            NotFound: a pool is gone.
            DiskError
        """

    @property
    def published(self) -> PublishedLists | None:
        """What managers publish at the discovery URL; None: there is no URL."""

    @property
    def tokens(self) -> TokenSource | None:
        """This manager's token service; None: it serves none."""

    @property
    def gossip_metrics(self) -> str:
        """Figures of this manager's gossip in Prometheus' text format; "" when it does not gossip."""

    @property
    def ipam_plugins(self) -> Sequence[str]:
        """Names of the IPAM plugins that networks use."""

    async def create_network(self, network: Network) -> Network:
        """Store a network, once its IPAM plugin has given its pools if it names one.

        Raises:
            As `control.network.add_network`; DiskError.
            FailedPrecondition: the plugin does not give them; says which and why.
        """

    def waiting_for(self, task_id: str) -> str:
        """For a task that is planned and not committed: "planned on node yard2, waiting for addresses"; else ""."""

    def next_try_at_s(self, task: Task) -> float | None:
        """When the slot of a task that ended is tried again, by the wall clock; None: its restart policy does not let it."""

    def held_back(self, task: Task) -> str:
        """Why a task whose node is down is not replaced, as in a mass failure; else "". Shown as the task's error."""


__all__ = ["ManagerStatus", "Packing", "PutAside", "TokenSource"]
