"""Who has which address: reservation, release and counting over all pools of the cluster.

Theory of operation
-------------------
A *pool* is one range of addresses per family. A *segment* is a stretch of LAN: an address is held at most once in it,
whichever pools overlap there. Within a segment an address is, in this order of precedence,

* *held* by a grant;
* *fixed*, never handed out: gateway, auxiliary and reserved addresses of any pool of the segment, the network and broadcast
  address of each IPv4 subnet (not /31 and /32: RFC 3021), the subnet-router anycast address of each IPv6 subnet (not /127 and
  /128: RFC 6164), and the addresses that the nodes themselves have (`set_foreign`, in all segments);
* *pinned*: kept for whoever asks for it by name (`set_pins`);
* *cooling*: released a short while ago, so that neighbours forget the old MAC before the address comes back; or *put aside*
  for longer, because a machine outside the cluster was found to have it;
* or free.

A pool's `total` leaves out what is fixed, so total = used + cooling + free. Ranges are never walked: each segment keeps
sorted lists of the addresses that are *not* free, and counting and finding are bisections in them, also in an IPv6 /64.

Addresses are handed out by next-fit: the search goes on behind the last one given and starts again at the range's begin.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from beeyard.core.address_space import AddressSpace, PoolUsage, Range, decrease, edge_addresses
from beeyard.core.errors import AddressUnavailable, NotFound, PoolExhausted
from beeyard.core.model import IPAMConfig

# 30 s: an ARP entry lives 15 to 45 s by Linux' default (base_reachable_time 30 s, half to three halves of it).
COOL_DOWN_S = 30.0
# Moving one address within sorted lists of 100,000 costs about 40 us, sorting them anew about 20 ms.
REBUILD_MIN = 500
# 1 us: adding and subtracting the same duration from a time in seconds does not give exactly the same time.
TIME_ERROR_S = 1e-6


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What `AddressBook` has to know of a pool: at most one IPAM entry per family, validated by `pools.py`."""

    pool_id: str
    name: str
    segment: str
    ipam: tuple[IPAMConfig, ...]
    reserved: tuple[str, ...] = ()  # more addresses that are never handed out


class _Grant(msgspec.Struct):
    pool_id: str
    segment: str
    addresses: tuple[tuple[int, int], ...]  # (family, address)
    texts: tuple[str, ...]
    owner: str = ""  # who has them by name


class AddressBook:
    """All pools and all grants of the cluster. Pure: times are passed in and only compared with each other."""

    def __init__(self, cool_down_s: float = COOL_DOWN_S, *, rebuild_min: int = REBUILD_MIN) -> None:
        self._cool_down_s = cool_down_s
        self._rebuild_min = rebuild_min
        self._pools: dict[str, tuple[PoolSpec, tuple[Range, ...]]] = {}
        self._grants: dict[str, _Grant] = {}
        self._foreign: dict[str, frozenset[tuple[int, int]]] = {}
        self._foreign_count: dict[int, Counter[int]] = {4: Counter(), 6: Counter()}
        self._pins: dict[str, frozenset[tuple[str, int, int]]] = {}  # by owner: (segment, family, address)
        self._holder: dict[tuple[str, int, int], str] = {}  # (segment, family, address) → grant
        self._spaces: dict[tuple[str, int], AddressSpace] = {}
        self._cooling: list[tuple[float, str, int, int]] = []  # heap of (ready_s, segment, family, address)

    def set_pool(self, spec: PoolSpec) -> None:
        """Add or change a pool. What is granted stays granted, also when it lies outside the new range or segment."""
        before = self._pools.get(spec.pool_id)
        ranges = tuple(Range(config, spec.reserved) for config in spec.ipam)
        assert len({span.family for span in ranges}) == len(ranges) > 0, f"pool {spec.name}: one subnet per family"
        if before is not None:
            cursors = {span.family: span.cursor for span in before[1]}
            for span in ranges:
                span.cursor = cursors.get(span.family, span.first)
            self._unfix(*before)
        self._pools[spec.pool_id] = (spec, ranges)
        for span in ranges:
            space = self._space(spec.segment, span.family)
            space.fixed.update(span.fixed)
            space.refresh(span.fixed)
        if before is not None and before[0].segment != spec.segment:
            self._move_grants(spec)

    def remove_pool(self, pool_id: str) -> None:
        """Forget a pool; what it granted stays held until released."""
        before = self._pools.pop(pool_id, None)
        if before is not None:
            self._unfix(*before)

    def set_foreign(self, owner: str, addresses: Iterable[str]) -> None:
        """Replace the addresses that a node has itself (with or without prefix length); none of them is handed out."""
        now = frozenset(_parse(text) for text in addresses)
        before = self._foreign.pop(owner, frozenset())
        if now:
            self._foreign[owner] = now
        for family, count in self._foreign_count.items():
            gone = [address for f, address in before - now if f == family]
            come = [address for f, address in now - before if f == family]
            decrease(count, gone)
            count.update(come)
            for (_, space_family), space in self._spaces.items():
                if space_family == family:
                    space.refresh([*gone, *come])

    def set_pins(self, owner: str, pins: Iterable[tuple[str, str]]) -> None:
        """Replace what is kept for an owner, as (segment, address): it is given by name alone. None: nothing any more."""
        now = frozenset((segment, *_parse(text)) for segment, text in pins)
        before = self._pins.pop(owner, frozenset())
        if now:
            self._pins[owner] = now
        for change, changed in ((-1, before - now), (1, now - before)):
            for segment, family, address in sorted(changed):
                space = self._space(segment, family)
                if change > 0:
                    space.pinned[address] += 1
                else:
                    decrease(space.pinned, (address,))
                space.refresh((address,))

    def held_among(self, addresses: Iterable[str]) -> list[str]:
        """Those of some addresses (with or without prefix length) that a grant holds, in whatever segment."""
        parsed = [(text, *_parse(text)) for text in addresses]
        spaces = list(self._spaces.items())
        return [text for text, f, a in parsed if any(f == family and a in space.held for (_, family), space in spaces)]

    def reserve(self, pool_id: str, grant_id: str, now_s: float) -> tuple[str, ...]:
        """Take one address of each family of a pool, all or nothing. Repeating a grant id gives the same addresses.

        Raises:
            PoolExhausted: no address of one family is free now.
            NotFound: no such pool.
        """
        held = self._grants.get(grant_id)
        if held is not None:
            assert held.pool_id == pool_id, f"grant {grant_id} is of pool {held.pool_id}, not {pool_id}"
            return held.texts
        spec, ranges = self._pool(pool_id)
        self._thaw(now_s)
        found: list[tuple[Range, int]] = []
        for span in ranges:
            address = self._space(spec.segment, span.family).find(span)
            if address is None:
                raise PoolExhausted(spec.name, span.family)
            found.append((span, address))
        for span, address in found:
            span.cursor = address + 1
        texts = tuple(span.text(address) for span, address in found)
        self._hold(grant_id, pool_id, spec.segment, tuple((span.family, a) for span, a in found), texts)
        return texts

    def reserve_pinned(
        self, pool_id: str, grant_id: str, pins: Sequence[str], now_s: float, *, owner: str
    ) -> tuple[str, ...]:
        """Take these addresses of a pool's subnets, and one each of its other families. All or nothing.

        An address that rests is given all the same to the owner that had it last by name.

        Raises:
            AddressUnavailable: one of them cannot be given.
            PoolExhausted: no address of another family is free now.
            NotFound: no such pool.
        """
        spec, ranges = self._pool(pool_id)
        asked = dict(map(_parse, pins))
        for text in pins:
            if use := self.use_of(spec.segment, text, now_s, by_name=owner):
                raise AddressUnavailable(text, use)
        found: list[tuple[Range, int]] = []
        for span in ranges:
            address = asked.get(span.family, self._space(spec.segment, span.family).find(span))
            if address is None:
                raise PoolExhausted(spec.name, span.family)
            found.append((span, address))
        for span, address in found:
            span.cursor = span.cursor if span.family in asked else address + 1
        texts = tuple(span.text(address) for span, address in found)
        self._hold(grant_id, pool_id, spec.segment, tuple((span.family, a) for span, a in found), texts, owner)
        return texts

    def restore(self, grant_id: str, pool_id: str, segment: str, addresses: Sequence[str], *, owner: str = "") -> None:
        """Hold what was granted earlier, before anything new is reserved. Repeating it is fine.

        Raises:
            ValueError: another grant holds one of the addresses in this segment; nothing is held then.
        """
        parsed = tuple(_parse(text) for text in addresses)
        before = self._grants.get(grant_id)
        if before is not None:
            if before.addresses != parsed:
                raise ValueError(f"grant {grant_id} already holds {', '.join(before.texts)}")
            return
        for (family, address), text in zip(parsed, addresses, strict=True):
            if address in self._space(segment, family).held:
                raise ValueError(f"address {text} of grant {grant_id} is held by another grant in segment {segment}")
        self._hold(grant_id, pool_id, segment, parsed, tuple(addresses), owner)
        for span in self._pools[pool_id][1] if pool_id in self._pools else ():
            span.cursor = next((address + 1 for family, address in parsed if family == span.family), span.cursor)

    def use_of(self, segment: str, address: str, now_s: float, *, by_name: str = "") -> str:
        """What keeps an address (with or without prefix length) of a segment from being granted; "" when nothing does.

        `by_name`: the owner to whom it is pinned, so that neither this matters nor a rest from the same owner.
        """
        family, number = _parse(address)
        self._thaw(now_s)
        space = self._space(segment, family)
        if number in space.held:
            return "another task holds"
        if number in self._foreign_count[family]:
            return "a node has itself"
        if number in space.fixed:
            return "is never handed out on this LAN"
        if not by_name and number in space.pinned:
            return "is kept for a slot of a service"
        if by_name and space.last_owner.get(number) == by_name:
            return ""
        return "rests: a task had it a moment ago, or a stranger has it" if number in space.ready_s else ""

    def ready_s(self, segment: str, address: str) -> float | None:
        """When an address that rests or was put aside is free again; None when it does neither."""
        family, number = _parse(address)
        return self._space(segment, family).ready_s.get(number)

    def release(self, grant_id: str, now_s: float) -> None:
        """Give a grant's addresses back; each rests for the cool-down. Idempotent."""
        grant = self._grants.pop(grant_id, None)
        for family, address in grant.addresses if grant is not None else ():
            assert grant is not None
            space = self._space(grant.segment, family)
            if space.give_up(address):
                self._holder.pop((grant.segment, family, address), None)
                # Not when it was put aside meanwhile: that is said of everybody.
                if grant.owner and space.ready_s.get(address, now_s) <= now_s:
                    space.last_owner[address] = grant.owner
                else:
                    space.last_owner.pop(address, None)
                if self._cool_down_s > 0:
                    self._cool(grant.segment, family, address, now_s + self._cool_down_s)
            space.refresh((address,))

    def set_aside(self, segment: str, address: str, until_s: float) -> None:
        """Give an address (with or without prefix length) to nobody before a time; whoever holds it keeps it."""
        family, number = _parse(address)
        self._space(segment, family).last_owner.pop(number, None)
        self._cool(segment, family, number, until_s)
        self._space(segment, family).refresh((number,))

    def take_back(self, segment: str, address: str) -> None:
        """Let an address (with or without prefix length) that rests or was put aside be given at once. Idempotent."""
        family, number = _parse(address)
        space = self._space(segment, family)
        space.ready_s.pop(number, None)  # Its entry in the heap is dropped in its time.
        space.last_owner.pop(number, None)
        space.refresh((number,))

    def _cool(self, segment: str, family: int, address: int, until_s: float) -> None:
        """Not free before a time, nor sooner than was said before. The caller refreshes."""
        space = self._space(segment, family)
        if until_s > space.ready_s.get(address, -math.inf):
            space.ready_s[address] = until_s
            heapq.heappush(self._cooling, (until_s, segment, family, address))

    def usage(self, pool_id: str, now_s: float) -> PoolUsage:
        """Counts of a pool at this time, of its family with the fewest free addresses. Raises NotFound."""
        spec, ranges = self._pool(pool_id)
        self._thaw(now_s)
        by_family = [self._space(spec.segment, span.family).usage(span.first, span.last) for span in ranges]
        return min(by_family, key=lambda usage: usage.free)

    def next_ready_s(self, now_s: float) -> float | None:
        """When the next cooling address is free again, or None when none is cooling."""
        self._thaw(now_s)
        return self._cooling[0][0] if self._cooling else None

    def holder(self, segment: str, address: str) -> str:
        """The grant that holds an address (with or without prefix length); "" when none does."""
        return self._holder.get((segment, *_parse(address)), "")

    def addresses_of(self, grant_id: str) -> tuple[str, ...]:
        """What a grant holds, with prefix lengths; empty when there is no such grant."""
        grant = self._grants.get(grant_id)
        return grant.texts if grant is not None else ()

    def grants(self) -> Iterator[str]:
        """Ids of all grants that hold addresses, in the order they were made."""
        return iter(self._grants)

    def _pool(self, pool_id: str) -> tuple[PoolSpec, tuple[Range, ...]]:
        if pool_id not in self._pools:
            raise NotFound("pool", pool_id)
        return self._pools[pool_id]

    def _space(self, segment: str, family: int) -> AddressSpace:
        key = (segment, family)
        if key not in self._spaces:
            self._spaces[key] = AddressSpace(self._foreign_count[family], self._rebuild_min)
        return self._spaces[key]

    def _hold(
        self,
        grant_id: str,
        pool_id: str,
        segment: str,
        addresses: tuple[tuple[int, int], ...],
        texts: tuple[str, ...],
        owner: str = "",
    ) -> None:
        self._grants[grant_id] = _Grant(pool_id, segment, addresses, texts, owner)
        for family, address in addresses:
            self._space(segment, family).hold((address,))
            self._holder[segment, family, address] = grant_id

    def _unfix(self, spec: PoolSpec, ranges: Iterable[Range]) -> None:
        for span in ranges:
            space = self._space(spec.segment, span.family)
            decrease(space.fixed, span.fixed)
            space.refresh(span.fixed)

    def _move_grants(self, spec: PoolSpec) -> None:
        """Follow a pool into another segment. There an address may then be held twice; it is freed by the last release."""
        for grant_id, grant in self._grants.items():
            if grant.pool_id != spec.pool_id or grant.segment == spec.segment:
                continue
            for family, address in grant.addresses:
                old = self._space(grant.segment, family)
                if old.give_up(address):
                    self._holder.pop((grant.segment, family, address), None)
                old.refresh((address,))
                self._space(spec.segment, family).hold((address,))
                self._holder[spec.segment, family, address] = grant_id
            grant.segment = spec.segment

    def _thaw(self, now_s: float) -> None:
        """End the cool-down of all addresses whose time has come, and drop entries that are no longer true."""
        thawed: dict[tuple[str, int], list[int]] = {}
        while self._cooling:
            ready_s, segment, family, address = self._cooling[0]
            space = self._spaces[segment, family]
            # Invariant: of the entries of one address that are in the heap, the latest alone is true.
            if space.ready_s.get(address) == ready_s and ready_s - now_s > TIME_ERROR_S:
                break
            heapq.heappop(self._cooling)
            if space.ready_s.get(address) == ready_s:
                del space.ready_s[address]
                space.last_owner.pop(address, None)
                thawed.setdefault((segment, family), []).append(address)
        for key, addresses in thawed.items():
            self._spaces[key].refresh(addresses)


def _parse(text: str) -> tuple[int, int]:
    interface = ipaddress.ip_interface(text.partition("%")[0] if "%" in text else text)
    return interface.version, int(interface.ip)


__all__ = ["COOL_DOWN_S", "AddressBook", "PoolSpec", "PoolUsage", "edge_addresses"]
