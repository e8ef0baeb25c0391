"""Which of a node's generic resources are whose: the names behind the numbers that placement counts.

Theory of operation
-------------------
Placement counts how many of a kind are free on a node; `ClaimBook` says which. A kind that the node lists by name is claimed
by name, in the node's order; of one that it only counts, a claim is a number. A name that a node does not list any more stays
its task's until that ends, and is not given again. A claim is part of the task's grants, from which the book is restored.
"""

from __future__ import annotations

from collections.abc import Sequence

from beeyard.core.errors import AllocationError
from beeyard.core.resources import GenericResource


class ResourcesTaken(AllocationError):
    """A node has fewer free ones of a kind than a task needs."""

    def __init__(self, kind: str, asked: int, free: int) -> None:
        super().__init__(kind, asked, free)
        self.kind = kind
        self.asked = asked
        self.free = free

    def __str__(self) -> str:
        return f"{self.asked} {self.kind} asked, {self.free} free on this node"


class ClaimBook:
    """Claims by grant."""

    def __init__(self) -> None:
        self._grants: dict[str, tuple[str, tuple[GenericResource, ...]]] = {}  # node id, what is claimed there
        self._holder: dict[tuple[str, str, str], str] = {}  # (node id, kind, name) → grant id

    def claim(
        self, node_id: str, grant_id: str, offered: Sequence[GenericResource], asked: Sequence[tuple[str, int]]
    ) -> tuple[GenericResource, ...]:
        """Claim so many of each kind, all or nothing; in the order of `asked`.

        Numbers that have no names are not checked: that is what placement counts.

        Raises:
            ResourcesTaken: the node has no such kind, or not so many names that are free.
        """
        assert grant_id not in self._grants, f"grant {grant_id} has its claim"
        by_kind = {resource.kind: resource for resource in offered}
        claims = []
        for kind, amount in asked:
            resource = by_kind.get(kind, GenericResource(kind=kind))
            if not resource.names:
                if resource.value < amount:
                    raise ResourcesTaken(kind, amount, resource.value)
                claims.append(GenericResource(kind=kind, value=amount))
                continue
            free = [name for name in resource.names if (node_id, kind, name) not in self._holder]
            if len(free) < amount:
                raise ResourcesTaken(kind, amount, len(free))
            claims.append(GenericResource(kind=kind, names=tuple(free[:amount])))
        self.restore(node_id, grant_id, claims)
        return tuple(claims)

    def restore(self, node_id: str, grant_id: str, claims: Sequence[GenericResource]) -> None:
        """Hold again what was claimed in an earlier life. Idempotent."""
        self._grants.setdefault(grant_id, (node_id, tuple(claims)))
        for claim in claims:
            for name in claim.names:
                self._holder.setdefault((node_id, claim.kind, name), grant_id)

    def release(self, grant_id: str) -> None:
        """Give a claim back. Idempotent."""
        node_id, claims = self._grants.pop(grant_id, ("", ()))
        for claim in claims:
            for name in claim.names:
                if self._holder.get((node_id, claim.kind, name)) == grant_id:
                    del self._holder[node_id, claim.kind, name]

    def grants(self) -> list[str]:
        """Ids of all grants that hold something."""
        return list(self._grants)


__all__ = ["ClaimBook", "ResourcesTaken"]
