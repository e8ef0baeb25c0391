"""The books of an IPAM plugin as an independent program keeps them: what it gave, to which lease, and nothing of ours.

Used by the simulated plugin and by the real process of the e2e tests, so it imports nothing of the product.
"""

from __future__ import annotations

import ipaddress
from typing import Any


class Refused(Exception):
    """The plugin's answer is this error."""


class Books:
    """Pools and addresses.

    Args:
        remembers: whether it knows a lease by its id, and gives the same address when it is asked again.
        by_label: the label of a node that decides in which part of a pool its addresses lie: {"r1": (64, 127), …} by its
            value, as offsets in the pool; nodes without it get any.
        default_pool: what it gives who leaves the choice of a subnet to it.
    """

    def __init__(
        self,
        *,
        remembers: bool = True,
        label: str = "rack",
        by_label: dict[str, tuple[int, int]] | None = None,
        default_pool: str = "10.201.0.0/24",
    ) -> None:
        self.remembers = remembers
        self.label = label
        self.by_label = by_label or {}
        self.default_pool = default_pool
        self.pools: dict[str, str] = {}  # subnet by pool id
        self.held: dict[tuple[str, str], str] = {}  # (pool id, address) → lease id, or what it is for
        self.n_pools = 0

    def addresses(self, pool_id: str = "") -> dict[str, str]:
        """Who has which address."""
        return {ip: who for (pool, ip), who in sorted(self.held.items()) if pool_id in ("", pool)}

    def request_pool(self, body: dict[str, Any]) -> dict[str, Any]:
        """The same subnet gives the same pool: a question may be repeated."""
        subnet = body["Pool"] or self.default_pool
        for pool_id, known in self.pools.items():
            if known == subnet:
                return {"PoolID": pool_id, "Pool": subnet, "Data": {}}
        self.n_pools += 1
        pool_id = f"pool{self.n_pools}"
        self.pools[pool_id] = subnet
        return {"PoolID": pool_id, "Pool": subnet, "Data": {}}

    def release_pool(self, body: dict[str, Any]) -> dict[str, Any]:
        pool_id = body["PoolID"]
        if any(pool == pool_id for pool, _ in self.held):
            raise Refused(f"pool {pool_id} is in use")
        self.pools.pop(pool_id, None)
        return {}

    def request_address(self, body: dict[str, Any]) -> dict[str, Any]:
        pool_id, options = body["PoolID"], body.get("Options") or {}
        if pool_id not in self.pools:
            raise Refused(f"unknown pool {pool_id}")
        subnet = ipaddress.ip_network(self.pools[pool_id])
        lease = options.get("beeyard.lease.id") or options.get("RequestAddressType") or "reserved"
        if body["Address"]:
            ip = body["Address"]
            if self.held.get((pool_id, ip), lease) != lease:
                raise Refused(f"address {ip} is in use")
        else:
            ip = self._again(pool_id, lease) or self._next(pool_id, subnet, options)
        self.held[pool_id, ip] = lease
        return {"Address": f"{ip}/{subnet.prefixlen}", "Data": {}}

    def release_address(self, body: dict[str, Any]) -> dict[str, Any]:
        self.held.pop((body["PoolID"], body["Address"]), None)
        return {}

    def _again(self, pool_id: str, lease: str) -> str:
        if not self.remembers:
            return ""
        return next((ip for (pool, ip), who in self.held.items() if (pool, who) == (pool_id, lease)), "")

    def _next(self, pool_id: str, subnet: Any, options: dict[str, str]) -> str:
        value = options.get(f"beeyard.node.labels.{self.label}", "")
        first, last = self.by_label.get(value, (1, subnet.num_addresses - 2))
        for offset in range(first, last + 1):
            ip = str(subnet[offset])
            if (pool_id, ip) not in self.held:
                return ip
        raise Refused("no available addresses on the pool")


METHODS = {
    "RequestPool": Books.request_pool,
    "ReleasePool": Books.release_pool,
    "RequestAddress": Books.request_address,
    "ReleaseAddress": Books.release_address,
}
KEYS = {
    "RequestPool": {"AddressSpace", "Pool", "SubPool", "Options", "V6"},
    "ReleasePool": {"PoolID"},
    "RequestAddress": {"PoolID", "Address", "Options"},
    "ReleaseAddress": {"PoolID", "Address"},
}


def answer(books: Books, method: str, body: dict[str, Any], capabilities: dict[str, bool]) -> dict[str, Any] | None:
    """The body of an answer; None when there is no such method. A body with keys that nobody documented is an error."""
    if method == "Plugin.Activate":
        return {"Implements": ["IpamDriver"]}
    interface, _, name = method.partition(".")
    if interface != "IpamDriver":
        return None
    if name == "GetCapabilities":
        return capabilities
    if name == "GetDefaultAddressSpaces":
        return {"LocalDefaultAddressSpace": "test-local", "GlobalDefaultAddressSpace": "test-global"}
    if name not in METHODS:
        return None
    if set(body) != KEYS[name]:
        return {"Error": f"{name} got {sorted(body)} and not {sorted(KEYS[name])}"}
    try:
        return METHODS[name](books, body)
    except Refused as refused:
        return {"Error": str(refused)}


__all__ = ["Books", "Refused", "answer"]
