"""A network interface of a host."""

from __future__ import annotations

import msgspec


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A network interface of a host as its agent reports it."""

    name: str
    mac: str = ""
    mtu: int = 0
    up: bool = False
    addresses: tuple[str, ...] = ()  # with prefix length
    # What receives its packets, so that no other kind can: "macvlan" or "ipvlan" when links of that kind sit on it, "bridge",
    # "bond", … when it is a port of one.
    child_kind: str = ""


__all__ = ["Link"]
