"""Finding the others: again and again, for as long as the daemon runs.

Theory of operation
-------------------
A *round* asks the sources in this order: the addresses that were given, the peers known from earlier, mDNS, and all
addresses of the host's own networks. Whoever answers is joined at once. A source that found company ends the round, but for
the scan, which goes on to its end: of two hosts that start at the same time the one that asks later finds the other, so that
hosts that start together never make two clusters of two, unless packets are lost.

*Company* is a living member of the own cluster on another host. Without it rounds follow each other, the pause between two
doubling up to `ALONE_S`, mDNS and the network being asked less often: the first peer of all waits like this. With company a
round is rare, and only the first member (by address) of each network asks mDNS and the network; all others ask those of
their known peers that are no members now. So two parts of a cluster that never met find each other within `SETTLED_S`, and
the cost of it does not grow with the cluster.

An address that answers and cannot be joined, such as one of another cluster, is left alone for a while that doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog
import trio

from beeyard.core.errors import PeerError
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers.known_peers import KnownPeers
from beeyard.discovery.peers.mdns import browse
from beeyard.discovery.peers.own_addresses import OwnAddress, own_addresses
from beeyard.discovery.peers.probe import Found, Prober
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime.host import Host

# Pauses between rounds: without company from the first to the last, drawn between half and all of it; with company.
FIRST_S, ALONE_S = 0.5, 30.0
SETTLED_S = 60.0
# Between two searches by mDNS and scan: each asks for hundreds of hosts that are not there. Whoever comes later searches
# himself and finds this host at once.
SEARCH_FIRST_S, SEARCH_MAX_S = 0.5, 60.0
# Addresses that are known answer at once or not now; twice as often as a packet may be lost in a row.
ASK_S = 0.3
# Responders answer within 0.1 s; the scan begins when none did, and mDNS is listened to for so long in all.
MDNS_HEAD_START_S, MDNS_S = 0.25, 1.0
# For so long it is asked around for a first peer, where nothing else tells by which address this host is known.
FIRST_ANSWER_S = 5.0
# One exchange with a peer that has answered a ping.
JOIN_S = 5.0
JOINS_AT_ONCE = 4
# An address that answers and cannot be joined.
AVOID_FIRST_S, AVOID_MAX_S = 5.0, 300.0
ADDRESSES_MAX = 4096
# Known peers that are asked in one round.
KNOWN_MAX = 32

log = structlog.get_logger(__name__)


class Company(Protocol):
    """What the finder wants to know of the cluster."""

    @property
    def me(self) -> Address:
        """Where this member gossips."""

    def is_member(self, address: Address) -> bool:
        """Whether a living member gossips there."""

    def has_company(self) -> bool:
        """Whether there is a living member of the own cluster on another host."""

    def is_first_in(self, own: Sequence[OwnAddress]) -> bool:
        """Whether no other living member of the own cluster in these networks has a smaller address."""

    async def changed(self) -> None:
        """Wait until there are others, or some are gone."""

    async def join(self, addresses: Sequence[Address]) -> int:
        """See `GossipNode.join`."""


class Searcher:
    """The two sources that know no address beforehand."""

    def __init__(self, host: Host, prober: Prober, settings: DiscoverySettings, port: int) -> None:
        self._host = host
        self._prober = prober
        self._settings = settings
        self._port = port

    async def search(self, own: Sequence[OwnAddress], found: Found) -> None:
        """Ask mDNS, and a moment later the whole network; over when both are."""
        async with trio.open_nursery() as nursery:
            if self._settings.mdns:
                nursery.start_soon(self._browse, own, found)
                await trio.sleep(MDNS_HEAD_START_S)
            if self._settings.scan:
                await self._prober.scan(own, self._port, found)

    async def first(self, own: Sequence[OwnAddress]) -> list[Address]:
        """The first that answers; none when nobody does."""
        answered: list[Address] = []

        def found(address: Address) -> None:
            if not any(address.host == ours.address for ours in own):
                answered.append(address)
                scope.cancel()

        with trio.move_on_after(FIRST_ANSWER_S) as scope:
            await self.search(own, found)
        return answered[:1]

    async def _browse(self, own: Sequence[OwnAddress], found: Found) -> None:
        await browse(self._host, self._settings.mdns, own, lambda _, address: found(address), wait_s=MDNS_S)


class Finder:
    """See the module.

    Args:
        given: addresses to ask first in each round; hosts may be names.
    """

    def __init__(
        self,
        host: Host,
        company: Company,
        prober: Prober,
        searcher: Searcher,
        known: KnownPeers,
        given: Sequence[Address],
    ) -> None:
        self._host = host
        self._company = company
        self._prober = prober
        self._searcher = searcher
        self._known = known
        self._given = list(given)
        self._under_way: dict[Address, None] = {}
        self._quiet = trio.Event()  # no join is under way
        self._avoided: dict[Address, tuple[float, float]] = {}  # until when, and for how long the last time
        self._search_at_s = 0.0
        self._search_pause_s = SEARCH_FIRST_S
        self._limiter = trio.CapacityLimiter(JOINS_AT_ONCE)
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Look for peers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            n_alone = 0
            while True:
                await self._round(thorough=not self._company.has_company())
                if self._company.has_company():
                    n_alone = 0
                    await self._rest()
                else:
                    pause_s = min(ALONE_S, FIRST_S * 2.0**n_alone)
                    n_alone = min(n_alone + 1, 16)
                    await trio.sleep(self._host.rng.uniform(pause_s / 2, pause_s))

    async def _rest(self) -> None:
        """Until the next round is due, or company is lost."""
        until_s = trio.current_time() + self._host.rng.uniform(SETTLED_S / 2, SETTLED_S)
        with trio.move_on_at(until_s):
            while self._company.has_company():
                await self._company.changed()

    async def _round(self, *, thorough: bool) -> None:
        """Ask all sources. `thorough`: until there is company; else only for what is missing."""
        await self._ask(await self._resolved(), by_stream=True)
        if thorough and self._company.has_company():
            return
        await self._ask(self._known.addresses()[:KNOWN_MAX])
        if thorough and self._company.has_company():
            return
        own = await own_addresses(self._host)
        if not thorough:
            self._search_pause_s = SEARCH_FIRST_S
            if not self._company.is_first_in(own):
                return
        elif trio.current_time() < self._search_at_s:
            return
        else:
            self._search_pause_s = min(2 * self._search_pause_s, SEARCH_MAX_S)
        await self._searcher.search(own, self._found)
        await self._joined()
        self._search_at_s = trio.current_time() + self._host.rng.uniform(self._search_pause_s / 2, self._search_pause_s)

    async def _resolved(self) -> list[Address]:
        addresses = []
        for address in self._given:
            try:
                addresses += [Address(host, address.port) for host in await self._host.net.resolve(address.host)]
            except PeerError as error:
                log.warning("a given peer cannot be asked", peer=str(address), reason=str(error))
        return addresses

    async def _ask(self, addresses: Sequence[Address], *, by_stream: bool = False) -> None:
        """Ask these and wait until those that answered are joined; over early when all have answered.

        `by_stream`: those that did not answer are tried all the same, in case a firewall lets only TCP through.
        """
        missing = {address: None for address in addresses if self._is_new(address)}
        if not missing:
            return

        def found(address: Address) -> None:
            self._found(address)
            missing.pop(address, None)
            if not missing:
                scope.cancel()

        with trio.CancelScope() as scope:
            await self._prober.ask(list(missing), found, wait_s=ASK_S)
        await self._joined()
        if by_stream:
            for address in missing:
                self._found(address)

    def _is_new(self, address: Address) -> bool:
        """Whether it is somebody else's, no member's, and may be tried now."""
        avoided_until_s, _ = self._avoided.get(address, (0.0, 0.0))
        return (
            address != self._company.me
            and not self._company.is_member(address)
            and trio.current_time() >= avoided_until_s
        )

    def _found(self, address: Address) -> None:
        """Somebody answers at this address, or should."""
        if self._is_new(address) and address not in self._under_way and len(self._under_way) < ADDRESSES_MAX:
            if not self._under_way:
                self._quiet = trio.Event()
            self._under_way[address] = None
            self._nursery.start_soon(self._join, address)

    async def _join(self, address: Address) -> None:
        try:
            async with self._limiter:
                # Others that were joined meanwhile may have told of it.
                if self._is_new(address):
                    await self._try(address)
        finally:
            del self._under_way[address]
            if not self._under_way:
                self._quiet.set()

    async def _try(self, address: Address) -> None:
        reason = f"no answer within {JOIN_S:g} s"
        with trio.move_on_after(JOIN_S):
            try:
                await self._company.join([address])
            except PeerError as error:
                reason = str(error)
            else:
                self._avoided.pop(address, None)
                log.info("joined a peer", peer=str(address))
                return
        _, last_s = self._avoided.get(address, (0.0, 0.0))
        pause_s = min(max(AVOID_FIRST_S, 2 * last_s), AVOID_MAX_S)
        if len(self._avoided) >= ADDRESSES_MAX:
            self._avoided.clear()
        self._avoided[address] = (trio.current_time() + pause_s, pause_s)
        log.info("a peer was not joined", peer=str(address), reason=reason, again_in_s=pause_s)

    async def _joined(self) -> None:
        """Wait until no join is under way."""
        if self._under_way:
            await self._quiet.wait()


__all__ = ["Company", "Finder", "Searcher"]
