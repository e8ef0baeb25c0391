"""Asking addresses whether a member of a gossip cluster is there: a ping that names nobody, which joins nobody.

Every memberlist answers such a ping with an ack and does nothing else. It goes out from a socket of its own, so that this
can be done before this daemon is a member of anything.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

import trio

from beeyard.core.errors import HostError, RemoteProtocolError
from beeyard.discovery.gossip.message import Ack, Address, Ping
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.peers.own_addresses import OwnAddress
from beeyard.runtime.host import Datagrams, Host

# The near part of a scan, the 256 addresses around the host's own: 16 packets each 5 ms ask a /24 in 80 ms.
NEAR_BITS = 8
NEAR_BURST, NEAR_PAUSE_S = 16, 0.005
# The rest: 100 a second. An address where nobody is holds an entry of the kernel's neighbour table for 3 s; those are 1,024
# by default (gc_thresh3), and whoever fills the table cuts the host off. Source: Linux net/ipv4/arp.c, net/core/neighbour.c.
# Faster would not work either: packets that wait for an answer of ARP fill the socket's send buffer, which holds some 280.
FAR_BURST, FAR_PAUSE_S = 2, 0.020
# A larger network than a /22 is asked around the host's own address alone.
SCAN_BITS_MAX = 10
# Answers come within a millisecond or two; a busy host may take this long.
LATE_S = 0.3

Found = Callable[[Address], None]


class Prober:
    """Asks on behalf of one daemon; `codec` gives one that knows its keys of this moment."""

    def __init__(self, host: Host, codec: Callable[[], PacketCodec]) -> None:
        self._host = host
        self._codec = codec

    async def ask(self, addresses: Sequence[Address], found: Found, *, wait_s: float, times: int = 2) -> None:
        """Ask some addresses and tell of each that answers; over after `wait_s`."""
        async with self._asking(found) as ask:
            for _ in range(times):
                for address in addresses:
                    await ask(address)
                await trio.sleep(wait_s / times)

    async def scan(self, addresses: Iterable[OwnAddress], port: int, found: Found) -> None:
        """Ask every other address of the host's own IPv4 networks, as far as `targets_near` and `targets_far` go."""
        own = [address for address in addresses if ":" not in address.address]
        mine = {address.address for address in own}
        async with self._asking(found) as ask:
            near = _distinct(own, targets_near, mine)
            far = (address for address in _distinct(own, targets_far, mine) if address not in near)
            for targets, burst, pause_s in (
                (list(near), NEAR_BURST, NEAR_PAUSE_S),
                (list(far), FAR_BURST, FAR_PAUSE_S),
            ):
                for at in range(0, len(targets), burst):
                    for target in targets[at : at + burst]:
                        await ask(Address(target, port))
                    await trio.sleep(pause_s)
            await trio.sleep(LATE_S)

    @contextlib.asynccontextmanager
    async def _asking(self, found: Found) -> AsyncIterator[Callable[[Address], Awaitable[None]]]:
        """Inside, the function that is given asks one address; whoever answers is told of, once."""
        sequence_number = self._host.rng.getrandbits(32)
        codec = self._codec()
        packet = codec.pack([encode(Ping(seq_no=sequence_number))])
        sockets: dict[bool, Datagrams | None] = {}
        seen: set[Address] = set()

        async def listen(socket: Datagrams) -> None:
            while True:
                data, source = await socket.receive()
                if _is_answer(codec, data, sequence_number) and source not in seen:
                    seen.add(Address(*source))
                    found(Address(*source))

        async with trio.open_nursery() as nursery:

            async def ask(address: Address) -> None:
                six = ":" in address.host
                if six not in sockets:
                    sockets[six] = socket = await self._socket("udp://[::]:0" if six else "udp://0.0.0.0:0")
                    if socket is not None:
                        nursery.start_soon(listen, socket)
                if (socket := sockets[six]) is not None:
                    await socket.send(address, packet)

            try:
                yield ask
            finally:
                nursery.cancel_scope.cancel()
                for bound in sockets.values():
                    if bound is not None:
                        with trio.CancelScope(shield=True):  # Safety: closing a socket does not wait
                            await bound.aclose()

    async def _socket(self, address: str) -> Datagrams | None:
        try:
            return await self._host.net.datagrams(address)
        except HostError:  # a family that this host does not have
            return None


def _is_answer(codec: PacketCodec, data: bytes, sequence_number: int) -> bool:
    try:
        messages = codec.unpack(data)
    except RemoteProtocolError:
        return False
    return any(isinstance(message, Ack) and message.seq_no == sequence_number for message in messages)


def targets_near(own: OwnAddress) -> Iterator[str]:
    """The host addresses of a network that share all but the last 8 bits with the host's own, or all if it is smaller."""
    return _targets(own, NEAR_BITS)


def targets_far(own: OwnAddress) -> Iterator[str]:
    """Those that share all but the last 10 bits: a /22."""
    return _targets(own, SCAN_BITS_MAX)


def _targets(own: OwnAddress, bits: int) -> Iterator[str]:
    network = own.network
    assert isinstance(network, ipaddress.IPv4Network)
    first, last = int(network.network_address), int(network.broadcast_address)
    if network.prefixlen < 31:
        first, last = first + 1, last - 1  # the network's own address and the broadcast address
    begin = int(ipaddress.ip_address(own.address)) >> bits << bits
    for number in range(max(first, begin), min(last, begin + (1 << bits) - 1) + 1):
        yield str(ipaddress.IPv4Address(number))


def _distinct(
    own: Sequence[OwnAddress], targets: Callable[[OwnAddress], Iterator[str]], mine: set[str]
) -> dict[str, None]:
    """The targets of several networks, each once and in order."""
    return dict.fromkeys(target for address in own for target in targets(address) if target not in mine)


__all__ = ["Found", "Prober", "targets_far", "targets_near"]
