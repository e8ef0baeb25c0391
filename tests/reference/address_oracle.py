"""The rule of `core.address_pool` by walking whole ranges: slow, short, and written from the rule."""

from __future__ import annotations

import ipaddress

from beeyard.core.address_pool import PoolSpec, PoolUsage

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressOracle:
    """Same calls as `AddressBook`; every answer is found by looking at each address of a range."""

    def __init__(self, cool_down_s: float) -> None:
        self.cool_down_s = cool_down_s
        self.pools: dict[str, PoolSpec] = {}
        self.held: dict[str, tuple[str, tuple[Address, ...]]] = {}  # grant id: segment, addresses
        self.released_s: dict[tuple[str, Address], float] = {}
        self.owners: dict[str, str] = {}  # grant id: who has its addresses by name
        self.last_owner: dict[tuple[str, Address], str] = {}
        self.foreign: dict[str, list[Address]] = {}
        self.pins: dict[str, list[tuple[str, Address]]] = {}
        self.last: dict[tuple[str, int], Address] = {}  # pool and family: the one given last

    def _range(self, pool_id: str, index: int) -> list[Address]:
        config = self.pools[pool_id].ipam[index]
        return list(ipaddress.ip_network(config.ip_range or config.subnet))

    def _fixed(self, segment: str) -> set[Address]:
        fixed = {a for addresses in self.foreign.values() for a in addresses}
        for pool in self.pools.values():
            for config in pool.ipam if pool.segment == segment else ():
                subnet = ipaddress.ip_network(config.subnet)
                all_of_subnet = list(subnet)
                if len(all_of_subnet) > 2:
                    fixed.add(all_of_subnet[0])
                    if subnet.version == 4:
                        fixed.add(all_of_subnet[-1])
                texts = [config.gateway, *config.aux_addresses.values(), *pool.reserved]
                addresses = [ipaddress.ip_address(t) for t in texts if t]
                fixed |= {a for a in addresses if a.version == subnet.version}
        return fixed

    def kind(self, segment: str, address: Address, now_s: float, fixed: set[Address]) -> str:
        if any(s == segment and address in held for s, held in self.held.values()):
            return "used"
        if address in fixed:
            return "fixed"
        if any((segment, address) in pins for pins in self.pins.values()):
            return "used"
        released_s = self.released_s.get((segment, address))
        return "cooling" if released_s is not None and now_s < released_s + self.cool_down_s else "free"

    def usage(self, pool_id: str, now_s: float) -> PoolUsage:
        segment = self.pools[pool_id].segment
        usages, fixed = [], self._fixed(segment)
        for index in range(len(self.pools[pool_id].ipam)):
            kinds = [self.kind(segment, a, now_s, fixed) for a in self._range(pool_id, index)]
            used, cooling, free = (kinds.count(k) for k in ("used", "cooling", "free"))
            usages.append(PoolUsage(total=used + cooling + free, used=used, cooling=cooling, free=free))
        return min(usages, key=lambda usage: usage.free)

    def reserve(self, pool_id: str, grant_id: str, now_s: float) -> tuple[str, ...] | None:
        pool = self.pools[pool_id]
        found: list[Address] = []
        fixed = self._fixed(pool.segment)
        for index in range(len(pool.ipam)):
            span = self._range(pool_id, index)
            last = self.last.get((pool_id, span[0].version))
            begin = span.index(last) + 1 if last in span else 0
            for address in span[begin:] + span[:begin]:
                if self.kind(pool.segment, address, now_s, fixed) == "free":
                    found.append(address)
                    break
            else:
                return None
        self.held[grant_id] = (pool.segment, tuple(found))
        for address in found:
            self.last[pool_id, address.version] = address
        lengths = [ipaddress.ip_network(config.subnet).prefixlen for config in pool.ipam]
        return tuple(f"{a}/{length}" for a, length in zip(found, lengths, strict=True))

    def reserve_pinned(
        self, pool_id: str, grant_id: str, pins: list[Address], now_s: float, owner: str
    ) -> tuple[str, ...] | None:
        """These addresses, also out of its owner's own rest and from outside the range, and one of each other family."""
        pool = self.pools[pool_id]
        fixed = self._fixed(pool.segment)
        held = {a for segment, addresses in self.held.values() if segment == pool.segment for a in addresses}
        if any(pin in held or pin in fixed or self._rests(pool.segment, pin, now_s, owner) for pin in pins):
            return None
        rest = PoolSpec(
            pool_id=pool_id,
            name="",
            segment=pool.segment,
            ipam=tuple(
                config
                for config in pool.ipam
                if ipaddress.ip_network(config.subnet).version not in [pin.version for pin in pins]
            ),
            reserved=pool.reserved,
        )
        texts: tuple[str, ...] | None = ()
        if rest.ipam:
            # Its range alone matters to the search; what is fixed was computed with the whole pool.
            fixed_of, self._fixed = self._fixed, lambda segment: fixed  # type: ignore[method-assign]
            self.pools[pool_id] = rest
            texts = self.reserve(pool_id, grant_id, now_s)
            self.pools[pool_id], self._fixed = pool, fixed_of  # type: ignore[method-assign]
        if texts is None:
            return None
        by_family = {ipaddress.ip_interface(text).version: text for text in texts}
        for config in pool.ipam:
            subnet = ipaddress.ip_network(config.subnet)
            for pin in pins:
                if pin.version == subnet.version:
                    by_family[pin.version] = f"{pin}/{subnet.prefixlen}"
        self.held[grant_id] = (pool.segment, tuple(ipaddress.ip_interface(text).ip for text in by_family.values()))
        self.owners[grant_id] = owner
        return tuple(by_family[ipaddress.ip_network(config.subnet).version] for config in pool.ipam)

    def release(self, grant_id: str, now_s: float) -> None:
        segment, addresses = self.held.pop(grant_id, ("", ()))
        for address in addresses:
            self.released_s[segment, address] = now_s
            self.last_owner[segment, address] = self.owners.get(grant_id, "")

    def _rests(self, segment: str, address: Address, now_s: float, owner: str) -> bool:
        released_s = self.released_s.get((segment, address))
        rests = released_s is not None and now_s < released_s + self.cool_down_s
        return rests and self.last_owner.get((segment, address)) != owner
