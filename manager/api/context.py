"""What every handler needs."""

from __future__ import annotations

import dataclasses

from beeyard.core.errors import HostError
from beeyard.core.model import Cluster
from beeyard.manager.api.status import ManagerStatus
from beeyard.manager.store import Store
from beeyard.runtime.host import Host


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """The manager as its API sees it."""

    host: Host
    store: Store
    status: ManagerStatus

    @property
    def manager_address(self) -> str:
        """This manager as Docker writes it: HOST:PORT."""
        return self.status.address.removeprefix("tcp://")

    @property
    def cluster(self) -> Cluster:
        """The cluster's record.

        Raises:
            HostError: it was not made yet.
        """
        cluster = self.store.cluster
        if cluster is None:
            raise HostError("the manager is still starting; try again")
        return cluster


__all__ = ["Context"]
