"""The way of a cluster volume to a node and back. Pure.

    pending-publish → published → pending-node-unpublish → pending-controller-unpublish → (not there)

The commit that gives a task a volume begins it. There is no storage provider with a part to do, so a volume is published one
look later; and a task's mounts are gone when its end was observed, so a volume without users goes back by itself. A node
that gets a new user on the way back has it published again.

Source: SwarmKit `manager/csi`, and `freeVolumes` of its scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from beeyard.core.volume import Published, PublishState, Volume

_BACK = {
    PublishState.PENDING_PUBLISH: PublishState.PENDING_NODE_UNPUBLISH,
    PublishState.PUBLISHED: PublishState.PENDING_NODE_UNPUBLISH,
    PublishState.PENDING_NODE_UNPUBLISH: PublishState.PENDING_UNPUBLISH,
    PublishState.PENDING_UNPUBLISH: None,
}
_THERE = (PublishState.PENDING_PUBLISH, PublishState.PUBLISHED)


def publish(volume: Volume, node_id: str) -> Volume:
    """Begin to publish a volume to a node; the same volume when it is there or on its way."""
    before = next((place.state for place in volume.published if place.node_id == node_id), None)
    if before in _THERE:
        return volume
    others = tuple(place for place in volume.published if place.node_id != node_id)
    place = Published(node_id=node_id, state=PublishState.PENDING_PUBLISH)
    return msgspec.structs.replace(volume, published=(*others, place))


def advance(volume: Volume, is_used: Callable[[str], bool]) -> Volume:
    """One step of each place on its way; the same volume when nothing is to be done.

    Args:
        is_used: whether a task on a node (by id) has the volume.
    """
    places = []
    for place in volume.published:
        state: PublishState | None
        if is_used(place.node_id):
            state = PublishState.PUBLISHED if place.state in _THERE else PublishState.PENDING_PUBLISH
        else:
            state = _BACK[place.state]
        if state is not None:
            places.append(Published(node_id=place.node_id, state=state))
    return volume if tuple(places) == volume.published else msgspec.structs.replace(volume, published=tuple(places))


__all__ = ["advance", "publish"]
