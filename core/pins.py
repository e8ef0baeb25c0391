"""Addresses and MAC addresses that belong to the slots of a service, by its labels.

`beeyard.addresses=10.1.0.10-10.1.0.14,fd00::10-fd00::14` gives slot n the n-th IPv4 and the n-th IPv6 address; items are
addresses or ranges with both ends, those of one family are counted through in the order given. `beeyard.mac=per-slot` derives
the MAC address of a slot's link from service, network and slot instead of from its address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from beeyard.core.errors import InvalidSpec
from beeyard.core.labels import LABEL_ADDRESSES, LABEL_MAC, PER_SLOT

# A range of IPv6 is written as fast as one of five; slots of one service are not that many.
PINS_MAX = 10_000

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Pins:
    """The addresses of a service's slots."""

    def __init__(self, by_family: Mapping[int, tuple[str, ...]]) -> None:
        self._by_family = dict(sorted(by_family.items()))

    def of_slot(self, slot: int) -> tuple[str, ...]:
        """The addresses of a slot, counted from 1, IPv4 first; empty for one beyond the last."""
        return tuple(addresses[slot - 1] for addresses in self._by_family.values() if 0 < slot <= len(addresses))

    def all(self) -> list[str]:
        """Every address, IPv4 first."""
        return [address for addresses in self._by_family.values() for address in addresses]

    def __len__(self) -> int:
        """How many slots have an address of each family that is given at all."""
        return min(map(len, self._by_family.values()), default=0)


NO_PINS = Pins({})


def pins_of(labels: Mapping[str, str]) -> Pins:
    """The addresses that a service's labels give to its slots.

    Raises:
        InvalidSpec: the label cannot be read.
    """
    text = labels.get(LABEL_ADDRESSES)
    return NO_PINS if text is None else parse_pins(text)


def has_slot_macs(labels: Mapping[str, str]) -> bool:
    """Whether the MAC addresses of a service's links follow from their slots."""
    return labels.get(LABEL_MAC) == PER_SLOT


@lru_cache(maxsize=256)
def parse_pins(text: str) -> Pins:
    """Read the label's value.

    Raises:
        InvalidSpec: names the item and what would be right.
    """
    found: dict[int, dict[Address, None]] = {}
    for item in text.split(","):
        first, last = _ends(item.strip())
        of_family = found.setdefault(first.version, {})
        n_addresses = int(last) - int(first) + 1
        if n_addresses + sum(map(len, found.values())) > PINS_MAX:
            raise _invalid(f"{item.strip()!r:.80} makes it more than {PINS_MAX} addresses")
        for number in range(n_addresses):
            address = first + number
            if address in of_family:
                raise _invalid(f"{address} is given twice")
            of_family[address] = None
    return Pins({family: tuple(map(str, addresses)) for family, addresses in found.items()})


def _ends(item: str) -> tuple[Address, Address]:
    first_text, dash, last_text = item.partition("-")
    try:
        first = ipaddress.ip_address(first_text.strip())
        last = ipaddress.ip_address(last_text.strip()) if dash else first
    except ValueError:
        raise _invalid(f"{item!r:.80} is not an address or a range, such as 10.1.0.10-10.1.0.14") from None
    if isinstance(first, ipaddress.IPv4Address) and isinstance(last, ipaddress.IPv4Address) and first <= last:
        return first, last
    if isinstance(first, ipaddress.IPv6Address) and isinstance(last, ipaddress.IPv6Address) and first <= last:
        if first.scope_id or last.scope_id:
            raise _invalid(f"{item!r:.80} has a zone, which only addresses of one host have")
        return first, last
    if first.version != last.version:
        raise _invalid(f"{item!r:.80} begins in one family and ends in the other")
    raise _invalid(f"{item!r:.80} ends before it begins")


def _invalid(reason: str) -> InvalidSpec:
    return InvalidSpec(f"label {LABEL_ADDRESSES}", reason)


__all__ = ["NO_PINS", "PINS_MAX", "Pins", "has_slot_macs", "parse_pins", "pins_of"]
