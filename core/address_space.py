"""Which addresses of a stretch of LAN are not free, in sorted lists that are searched and counted by bisection.

The rules are on top of `core.address_pool`, which is the face of this.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from beeyard.core.model import IPAMConfig

_FREE, _COOLING, _FIXED, _HELD = range(4)


class PoolUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of addresses, of the family with the fewest free: total = used + cooling + free.

    Those that were put aside count as cooling, those that are kept for a slot of a service as used.
    """

    total: int
    used: int
    cooling: int
    free: int


class Range:
    """The addresses of one family that a pool hands out, and where the search goes on."""

    __slots__ = ("cursor", "family", "first", "fixed", "last", "prefix_length")

    def __init__(self, config: IPAMConfig, reserved: Iterable[str]) -> None:
        subnet = ipaddress.ip_network(config.subnet)
        span = ipaddress.ip_network(config.ip_range) if config.ip_range else subnet
        self.family = subnet.version
        self.prefix_length = subnet.prefixlen
        self.first = int(span.network_address)
        self.last = int(span.broadcast_address)
        self.cursor = self.first
        self.fixed = edge_addresses(subnet)
        given = (config.gateway, *config.aux_addresses.values(), *reserved)
        self.fixed |= {int(a) for a in map(ipaddress.ip_address, filter(None, given)) if a.version == self.family}

    def text(self, address: int) -> str:
        """An address as a link wants it, with the subnet's prefix length."""
        return f"{_address(self.family, address)}/{self.prefix_length}"


class AddressSpace:
    """One family of one segment: what is known about each address that is not free."""

    def __init__(self, foreign: Counter[int], rebuild_min: int) -> None:
        self._foreign = foreign  # shared by all spaces of the family
        self._rebuild_min = rebuild_min
        self.held: Counter[int] = Counter()
        self.fixed: Counter[int] = Counter()  # by how many pools
        self.pinned: Counter[int] = Counter()  # by how many owners; held or not
        self.last_owner: dict[int, str] = {}  # of addresses that rest: who had it by name
        self.ready_s: dict[int, float] = {}  # when a cooling address is free again
        self._kind: dict[int, int] = {}
        # Invariant: _taken is sorted and holds exactly the keys of _kind; the two below are its held and cooling parts.
        self._taken: list[int] = []
        self._sorted: dict[int, list[int]] = {_HELD: [], _COOLING: []}
        self.refresh(foreign)

    def refresh(self, addresses: Collection[int]) -> None:
        """Bring the sorted lists in line with what the tables say about these addresses."""
        if len(addresses) >= self._rebuild_min:
            self._rebuild(addresses)
            return
        for address in addresses:
            before, now = self._kind.get(address, _FREE), self._classify(address)
            if before == now:
                continue
            if before in self._sorted:
                _remove(self._sorted[before], address)
            if now in self._sorted:
                insort(self._sorted[now], address)
            if now == _FREE:
                del self._kind[address]
                _remove(self._taken, address)
                continue
            self._kind[address] = now
            if before == _FREE:
                insort(self._taken, address)

    def _rebuild(self, addresses: Collection[int]) -> None:
        """The same for many addresses at once."""
        for address in addresses:
            now = self._classify(address)
            if now == _FREE:
                self._kind.pop(address, None)
            else:
                self._kind[address] = now
        self._taken = sorted(self._kind)
        for kind in self._sorted:
            self._sorted[kind] = [address for address in self._taken if self._kind[address] == kind]

    def _classify(self, address: int) -> int:
        if address in self.held:
            return _HELD
        if address in self.fixed or address in self._foreign:
            return _FIXED
        if address in self.pinned:
            return _HELD
        return _COOLING if address in self.ready_s else _FREE

    def usage(self, first: int, last: int) -> PoolUsage:
        """Counts within a range. O(log n) in the number of addresses that are not free."""
        taken = _count(self._taken, first, last)
        used = _count(self._sorted[_HELD], first, last)
        cooling = _count(self._sorted[_COOLING], first, last)
        size = last - first + 1
        return PoolUsage(total=size - (taken - used - cooling), used=used, cooling=cooling, free=size - taken)

    def find(self, span: Range) -> int | None:
        """The next free address of a range from its cursor on, going round once."""
        start = span.cursor if span.first <= span.cursor <= span.last else span.first
        found = self._first_free(start, span.last)
        return self._first_free(span.first, start - 1) if found is None else found

    def _first_free(self, start: int, last: int) -> int | None:
        """The smallest free address within start..last: bisection for the end of the gapless run that begins at `start`."""
        taken = self._taken
        low = bisect_left(taken, start)
        if low == len(taken) or taken[low] != start:
            return start if start <= last else None
        high = len(taken)
        # Invariant: taken[low] - low == start - (its index); such equality holds along a gapless run and nowhere behind it.
        base = start - low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if taken[middle] - middle == base else (low, middle)
        after = taken[low] + 1
        return after if after <= last else None

    def hold(self, addresses: Sequence[int]) -> None:
        self.held.update(addresses)
        self.refresh(addresses)

    def give_up(self, address: int) -> bool:
        """One holder less; True when there is none left. The caller refreshes."""
        self.held[address] -= 1
        if self.held[address] > 0:
            return False
        del self.held[address]
        return True


def edge_addresses(subnet: ipaddress.IPv4Network | ipaddress.IPv6Network) -> set[int]:
    """The addresses of a subnet that no host may have."""
    if subnet.max_prefixlen - subnet.prefixlen < 2:
        return set()
    first = int(subnet.network_address)
    return {first, int(subnet.broadcast_address)} if subnet.version == 4 else {first}


def _address(family: int, number: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.IPv4Address(number) if family == 4 else ipaddress.IPv6Address(number)


def _count(numbers: list[int], first: int, last: int) -> int:
    return bisect_right(numbers, last) - bisect_left(numbers, first)


def _remove(numbers: list[int], number: int) -> None:
    index = bisect_left(numbers, number)
    assert numbers[index] == number
    del numbers[index]


def decrease(count: Counter[int], numbers: Iterable[int]) -> None:
    """Count each of the numbers once less; those that reach 0 are gone."""
    for number in numbers:
        count[number] -= 1
        if count[number] <= 0:
            del count[number]


__all__ = ["AddressSpace", "PoolUsage", "Range", "decrease", "edge_addresses"]
