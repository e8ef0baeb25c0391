"""Where a daemon is told to look for peers: `self://:3388`, `serf://10.0.0.7,host2:7946`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.settings import SELF_PORT, SERF_PORT
from beeyard.runtime.address import TcpAddress, parse_address

SELF, SERF = "self://", "serf://"


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How peers are to be found. `port`: where this daemon gossips itself, and where a scan asks."""

    port: int
    given: tuple[Address, ...] = ()


def is_search(text: str) -> bool:
    """Whether this is such a URL, right or not."""
    return text.startswith((SELF, SERF))


def rejoined(entries: Sequence[str]) -> tuple[str, ...]:
    """A list that was split at its commas with its URLs whole again: what follows `serf://` belongs to it, up to the next."""
    whole: list[str] = []
    for entry in entries:
        if whole and whole[-1].startswith(SERF) and "://" not in entry:
            whole[-1] += f",{entry}"
        else:
            whole.append(entry)
    return tuple(whole)


def parse_search(urls: Sequence[str]) -> Search | None:
    """What some URLs say together; None when there are none.

    `self://` says the port, 3388 unless given. With `serf://` alone it is Serf's own, 7946, which is also the port of an
    address that has none.

    Raises:
        InvalidSpec: one of them is not right, or two of them name different ports.
    """
    ports = list(dict.fromkeys(_port_of(url) for url in urls if url.startswith(SELF)))
    if len(ports) > 1:
        raise InvalidSpec("peers", f"{SELF}:{ports[0]} and {SELF}:{ports[1]}: a daemon gossips on one port, give one")
    given = [address for url in urls if url.startswith(SERF) for address in _addresses_of(url)]
    if not ports and not given:
        return None
    return Search(port=ports[0] if ports else SERF_PORT, given=tuple(dict.fromkeys(given)))


def parse_peer(text: str, port: int) -> Address:
    """HOST or HOST:PORT, an IPv6 address with a port in brackets.

    Raises:
        InvalidSpec: it is neither.
    """
    bare_ipv6 = text.count(":") > 1 and not text.startswith("[")
    has_port = not bare_ipv6 and text.rpartition("]")[2].count(":") == 1
    whole = text if has_port else f"[{text.strip('[]')}]:{port}"
    try:
        found = parse_address(f"tcp://{whole}")
    except InvalidSpec:
        found = None
    odd = any(character in text for character in "/@?# \t,")
    if odd or not isinstance(found, TcpAddress) or not found.port:
        raise InvalidSpec("peers", f"{text!r} is not right: a peer is HOST or HOST:PORT, an IPv6 host in brackets")
    return Address(found.host, found.port)


def _port_of(url: str) -> int:
    rest = url.removeprefix(SELF).removesuffix("/")
    digits = rest.removeprefix(":")
    if not rest:
        return SELF_PORT
    if not rest.startswith(":") or not (digits.isascii() and digits.isdigit()) or not 1 <= int(digits) <= 65535:
        raise InvalidSpec("peers", f"{url!r} is not right: it is {SELF} or {SELF}:PORT, which names no host")
    return int(digits)


def _addresses_of(url: str) -> list[Address]:
    found = [
        parse_peer(part.strip(), SERF_PORT)
        for part in url.removeprefix(SERF).removesuffix("/").split(",")
        if part.strip()
    ]
    if not found:
        raise InvalidSpec("peers", f"{url!r} names nobody: it is {SERF}HOST,HOST:PORT; {SELF} finds peers without any")
    return found


__all__ = ["SELF", "SERF", "Search", "is_search", "parse_peer", "parse_search", "rejoined"]
