"""What rules want done. They put commands into a list; a driver takes them out and acts. Nothing here does anything."""

from __future__ import annotations

import msgspec

from beeyard.discovery.gossip.message import Address, Message


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One wish of the rules."""


class SendPacket(Command, frozen=True, kw_only=True):
    """One datagram: these parts, each already encoded with its type byte, as one compound when there are several.

    `crc`: the receiver is known to understand a checksum (its vsn says protocol max 5 or more).
    """

    to: Address
    parts: tuple[bytes, ...]
    crc: bool = False


class PingByStream(Command, frozen=True, kw_only=True):
    """Ask over TCP: send `ping`, read an ack. The driver calls `Memberlist.stream_ack(seq_no)` if it comes in time."""

    to: Address
    ping: Message
    seq_no: int
    timeout_s: float


class Exchange(Command, frozen=True, kw_only=True):
    """Push/pull with a member over TCP.

    The driver asks for `Memberlist.push_pull(join)` when it is connected, sends that, and gives the answer to
    `Memberlist.merge(remote, join=...)`. Failures it logs; the rules need not know.
    """

    to: Address
    join: bool = False


__all__ = ["Command", "Exchange", "PingByStream", "SendPacket"]
