"""Handshakes with strangers: who may try, whose turn it is to cost us something, and how long we listen.

Theory of operation
-------------------
Whoever connects is a stranger until its handshake is done. A stranger that says nothing costs a socket and nothing else:
nobody waits for it. Sockets are bounded, in all and for each address, so that one machine cannot take them all.

What costs is arithmetic, about 3 ms a handshake, in two steps: answer the greeting, check the certificate. `Turns` lets one
stranger at a time take its next step and everything else in the process go on before the next one, so a storm of 5,000
reconnecting agents does not starve the sessions that stand. Who is further goes first: what was begun gets done before its
other side loses patience.
"""

from __future__ import annotations

import heapq
import ipaddress
import itertools
from collections import Counter

import trio

# A quarter of the files that a process may have open; a storm of reconnecting agents is refused in part and comes again.
STRANGERS_MAX = 4096
# A quarter of these: a whole site may come from one address, and no single one shuts the others out.
STRANGERS_PER_ADDRESS_MAX = 1024
# An IPv6 host has at least a /64 to choose its addresses from.
_IPV6_SITE_BITS = 64


class Strangers:
    """Counts connections whose handshake is not done."""

    def __init__(self) -> None:
        self._by_site: Counter[str] = Counter()

    def admit(self, address: str) -> str:
        """Count one more, to be undone by `leave`; or the sentence why not, then nothing is counted."""
        if self._by_site.total() >= STRANGERS_MAX:
            return f"more than {STRANGERS_MAX} connections without a TLS handshake"
        site = _site(address)
        if self._by_site[site] >= STRANGERS_PER_ADDRESS_MAX:
            return f"more than {STRANGERS_PER_ADDRESS_MAX} connections of {site} without a TLS handshake"
        self._by_site[site] += 1
        return ""

    def leave(self, address: str) -> None:
        """One that was admitted is no stranger any more, or gone."""
        site = _site(address)
        self._by_site[site] -= 1
        if not self._by_site[site]:
            del self._by_site[site]


def _site(address: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one; text that is no address stands for itself."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, _IPV6_SITE_BITS), strict=False))
    return str(ip)


class Turns:
    """One after the other, each in a pass of trio's loop of its own."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, trio.Event]] = []  # a heap
        self._order = itertools.count()
        self._is_passed = False  # somebody has the turn, or is about to wake with it

    async def wait(self, n_steps_done: int) -> None:
        """Until it is this one's turn; it lasts until the caller's next checkpoint.

        Order: who has done more steps first, then who came first. Cancellation: the turn goes on to the next.
        """
        entry = (-n_steps_done, next(self._order), trio.Event())
        heapq.heappush(self._waiting, entry)
        if not self._is_passed:
            self._pass_on()
        try:
            await entry[2].wait()
        finally:
            if entry[2].is_set():
                # Whoever is woken now runs in the loop's next pass: after what the caller is about to compute.
                self._pass_on()
            else:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    def _pass_on(self) -> None:
        self._is_passed = bool(self._waiting)
        if self._waiting:
            heapq.heappop(self._waiting)[2].set()


class PatientStream(trio.abc.Stream):
    """A stranger's connection during its handshake: what it says is handed on when its turn has come.

    Raises trio.TooSlowError once the stranger has kept us waiting for longer than `patience_s` in all. The time in which it
    waits for its turn does not count.
    """

    def __init__(self, transport: trio.SocketStream, turns: Turns, patience_s: float) -> None:
        self._transport = transport
        self._turns = turns
        self._patience_s = patience_s
        self._n_steps = 0

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As the transport's, in turn."""
        began_s = trio.current_time()
        with trio.fail_after(self._patience_s):
            data = await self._transport.receive_some(max_bytes)
        self._patience_s = max(0.0, self._patience_s - (trio.current_time() - began_s))
        await self._turns.wait(self._n_steps)
        self._n_steps += 1
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As the transport's; a handshake fits into a socket's buffer, so only who wants to stall us does."""
        with trio.fail_after(self._patience_s):
            await self._transport.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As the transport's."""
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """As the transport's."""
        await self._transport.aclose()


__all__ = ["PatientStream", "Strangers", "Turns"]
