"""The snapshot: lines that let a member that starts again find the others, and not tell old events anew.

The format is that of Serf's -snapshot file. Ours differs in one thing: addresses of failed members stay (Serf forgets them,
so that a cluster whose power went out together does not find itself again).
Source: Serf 0.9.4 serf/snapshot.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from beeyard.discovery.gossip.message import Address

N_ALIVE_MAX = 65536  # a file that somebody has written garbage into


class Restored(msgspec.Struct, kw_only=True):
    """What a snapshot says at its end."""

    alive: dict[str, Address] = {}
    clock: int = 0
    event_clock: int = 0
    query_clock: int = 0
    left: bool = False  # the last thing that it did was to leave


def replay(text: str) -> Restored:
    """Read a snapshot. Lines that are not understood, such as a torn last one, are passed over."""
    state = Restored()
    for line in text.splitlines():
        kind, _, rest = line.partition(": ")
        if line == "leave":
            state = Restored(left=True)
        elif kind == "alive":
            name, _, address = rest.rpartition(" ")
            if name and (found := parse_address(address)) is not None and len(state.alive) < N_ALIVE_MAX:
                state.alive[name] = found
                state.left = False
        elif kind == "not-alive":
            state.alive.pop(rest, None)
        elif kind in ("clock", "event-clock", "query-clock") and rest.isascii() and rest.isdigit():
            setattr(state, kind.replace("-", "_"), int(rest) if len(rest) < 20 else 0)
    return state


def parse_address(text: str) -> Address | None:
    """`1.2.3.4:7946` or `[2001:db8::1]:7946`; None: it is neither."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return None
    return Address(host, int(port))


def alive_line(name: str, address: Address) -> str:
    """A member has joined or come back."""
    return f"alive: {name} {address}\n"


def not_alive_line(name: str) -> str:
    """A member has left or is forgotten."""
    return f"not-alive: {name}\n"


LEAVE_LINE = "leave\n"


def clock_lines(clock: int, event_clock: int, query_clock: int) -> str:
    """The last times that were seen on the three clocks; 0 is left out."""
    named = (("clock", clock), ("event-clock", event_clock), ("query-clock", query_clock))
    return "".join(f"{kind}: {time}\n" for kind, time in named if time > 0)


def whole(members: Iterable[tuple[str, Address]], clock: int, event_clock: int, query_clock: int) -> str:
    """A snapshot from nothing."""
    return "".join(alive_line(*member) for member in members) + clock_lines(clock, event_clock, query_clock)


def is_one_line(name: str) -> bool:
    """Whether a name can be written: a peer may choose one with a line end in it, to forge lines."""
    return len(name.splitlines()) == 1 and not name.endswith(("\n", "\r"))


__all__ = [
    "LEAVE_LINE",
    "Restored",
    "alive_line",
    "clock_lines",
    "is_one_line",
    "not_alive_line",
    "parse_address",
    "replay",
    "whole",
]
