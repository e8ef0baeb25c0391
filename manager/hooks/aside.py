"""Which addresses machines outside the cluster were found to have, and until when nobody is given them.

The book of addresses keeps them from being handed out; here is what a person should know of them.

A machine that answers for every address, such as a router with proxy ARP, would have a pool put aside address by address, an
hour each. So a pool in which one machine was found with `SAME_MACHINE_MAX` addresses is *closed*: no more of it are tried
until fewer are put aside, because their time is over or an operator took them back (`beeyard pool release`).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from beeyard.core.grant import AddressGrant
from beeyard.core.model import Node, Task
from beeyard.core.pools import ResolvedPool

# An hour: long enough that a machine with a fixed address costs a start now and then and no more, short enough that one
# which was only visiting does not cost the pool an address for good.
ASIDE_S = 3600.0
# Above what a server with some addresses of its own has; a proxy is there within a second. A higher number costs a pool more
# addresses before anybody is told, a lower one closes pools for machines that are best excluded one by one.
SAME_MACHINE_MAX = 8
# One stranger that answers for everything must not fill the screen.
WARNINGS_MAX = 5

log = structlog.get_logger(__name__)


class Aside(NamedTuple):
    """One address that was put aside."""

    segment: str
    address: str  # without prefix length
    mac: str  # of the machine that answered
    node_id: str  # whose agent found it
    until_s: float  # in the manager's monotonic clock
    found_at_s: float = 0.0  # by the wall clock


class AddressesAside:
    """All addresses that are put aside. `set_aside` is told of each: (segment, address, until when)."""

    def __init__(self, duration_s: float, set_aside: Callable[[str, str, float], None]) -> None:
        self._duration_s = duration_s
        self._set_aside = set_aside
        self._known: dict[tuple[str, str], Aside] = {}

    def add(self, task: Task, now_s: float, *, ago_s: float = 0.0) -> None:
        """Put aside what a task's agent found taken, so many seconds ago."""
        left_s = min(self._duration_s - ago_s, self._duration_s)
        grants = [grant for grant in task.grants if isinstance(grant, AddressGrant)]
        segments = {text.partition("/")[0]: grant.segment for grant in grants for text in grant.addresses}
        for conflict in task.status.conflicts if left_s > 0 else ():
            segment = segments.get(conflict.address)
            if segment is None:
                continue
            aside = Aside(segment, conflict.address, conflict.mac, task.node_id, now_s + left_s, task.updated_at_s)
            before = self._known.get((segment, conflict.address))
            if before is None or before.until_s < aside.until_s:
                self._known[segment, conflict.address] = aside
                self._set_aside(segment, conflict.address, aside.until_s)
                log.warning(
                    "an address is in use outside the cluster and put aside",
                    address=conflict.address,
                    mac=conflict.mac,
                    node=task.node_id,
                    for_s=round(left_s),
                )

    def drop(self, aside: Aside) -> None:
        """It is not put aside any more. Idempotent."""
        self._known.pop((aside.segment, aside.address), None)

    def of_crowds(self, now_s: float) -> list[Aside]:
        """What is put aside for machines that have so many addresses that pools may be closed for them."""
        found = self.now(now_s) if self._known else ()
        counts = Counter((aside.segment, aside.mac) for aside in found)
        return [aside for aside in found if counts[aside.segment, aside.mac] >= SAME_MACHINE_MAX]

    def now(self, now_s: float) -> Collection[Aside]:
        """What is put aside now, in the order in which it was found."""
        self._known = {key: aside for key, aside in self._known.items() if aside.until_s > now_s}
        return self._known.values()


def in_pool(found: Iterable[Aside], pool: ResolvedPool) -> list[Aside]:
    """Those of a pool's ranges."""
    mine = [aside for aside in found if aside.segment == pool.segment]
    if not mine:
        return []  # as nearly always
    spans = [ipaddress.ip_network(config.ip_range or config.subnet) for config in pool.ipam if config.subnet]
    return [aside for aside in mine if any(ipaddress.ip_address(aside.address) in span for span in spans)]


def closed_by(found: Iterable[Aside], pool: ResolvedPool) -> str:
    """Why no more addresses of a pool are tried, a sentence with what to do about it; "" when they are.

    Addresses that the pool does not hand out any more do not count: that is how an operator excludes a machine with many.
    """
    excluded = {address for config in pool.ipam for address in (config.gateway, *config.aux_addresses.values())}
    counts = Counter(
        (aside.mac, ":" in aside.address) for aside in in_pool(found, pool) if aside.address not in excluded
    )
    for (mac, _), n_addresses in counts.most_common(1):
        if n_addresses >= SAME_MACHINE_MAX:
            return (
                f"{mac} outside the cluster answers for {n_addresses} addresses of pool {pool.name}, as a router with proxy "
                f"ARP does, so no more are tried; silence it, then run: beeyard pool release {pool.name}"
            )
    return ""


def aside_warnings(found: Sequence[Aside], nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """What an operator should know: a sentence for each of the first few, and how many more there are."""
    sentences = []
    for aside in found[:WARNINGS_MAX]:
        node = nodes.get(aside.node_id)
        name = (node.description.hostname if node is not None else "") or aside.node_id
        sentences.append(
            f"address {aside.address} is in use outside the cluster by {aside.mac}, as node {name} found: it is put aside"
        )
    if len(found) > WARNINGS_MAX:
        sentences.append(f"{len(found) - WARNINGS_MAX} more addresses are in use outside the cluster and put aside")
    return tuple(sentences)


__all__ = ["ASIDE_S", "SAME_MACHINE_MAX", "AddressesAside", "Aside", "aside_warnings", "closed_by", "in_pool"]
