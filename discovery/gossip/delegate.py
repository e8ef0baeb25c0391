"""What memberlist asks the layer above, which is Serf. Names follow memberlist's own interfaces.

Source: memberlist 0.2.2 delegate.go, event_delegate.go, conflict_delegate.go, ping_delegate.go, alive_delegate.go,
merge_delegate.go.
"""

from __future__ import annotations

from typing import Protocol

from beeyard.discovery.gossip.message import Alive, NodeRecord


class Delegate(Protocol):
    """All methods return at once, send nothing themselves and never raise for what a peer did."""

    def meta(self) -> bytes:
        """What goes into `Alive.meta` of the local member, at most 512 bytes."""

    def notify_message(self, data: bytes) -> None:
        """A user message came, in a packet or over a stream; data begins with Serf's type byte."""

    def broadcasts(self, overhead: int, limit: int) -> list[bytes]:
        """User messages (without memberlist's type byte) to add to a packet that has `limit` bytes left; each costs
        its length and `overhead`."""

    def local_state(self, *, join: bool) -> bytes:
        """`PushPull.user_state` to send."""

    def merge_remote_state(self, data: bytes, *, join: bool) -> None:
        """`PushPull.user_state` of a peer."""

    def notify_join(self, node: NodeRecord) -> None:
        """A member is alive that was dead, had left or was not known."""

    def notify_leave(self, node: NodeRecord) -> None:
        """A member is dead (state 2) or has left (state 3)."""

    def notify_update(self, node: NodeRecord) -> None:
        """An alive member has other meta or vsn."""

    def notify_conflict(self, existing: NodeRecord, other: NodeRecord) -> None:
        """Somebody else goes by the name of a member."""

    def is_welcome(self, alive: Alive) -> bool:
        """Whether a member may be taken in at all: not one of another cluster. Asked for each `Alive` and each record."""

    def ack_payload(self) -> bytes:
        """What goes into acks of packets: the coordinate, and what this member's view is."""

    def notify_ping_complete(self, name: str, rtt_s: float, payload: bytes) -> None:
        """A direct ping was answered."""


__all__ = ["Delegate"]
