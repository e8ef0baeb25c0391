"""Doing what a relaxation says, by the index's ordinary calls."""

from __future__ import annotations

import msgspec

from beeyard.core.placement import PlacementIndex
from beeyard.core.relaxation import Relaxation, Yield
from beeyard.core.states import Availability, NodeState


def applied(index: PlacementIndex, relaxation: Relaxation) -> PlacementIndex:
    """A copy of an index in which the cluster's part of a relaxation was done; the demand's is `relaxation.demand`."""
    tried = index.copy()
    for change in relaxation.changes:
        if change.what is Yield.NODE:
            node = tried._asking.columns.nodes[tried._holds.rows[change.name]]
            assert node is not None
            tried.set_node(
                msgspec.structs.replace(
                    node,
                    spec=msgspec.structs.replace(node.spec, availability=Availability.ACTIVE),
                    description=msgspec.structs.replace(node.description, stopping=False),
                    status=msgspec.structs.replace(node.status, state=NodeState.READY),
                )
            )
        elif change.what is Yield.ADDRESSES:
            pools = tried._pools
            row = pools.row(change.name)
            tried.set_pool_free(change.name, int(pools.available[row]) + pools._planned[change.name] + change.amount)
    return tried


__all__ = ["applied"]
