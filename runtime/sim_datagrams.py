"""`Datagrams` of one life on a simulated machine."""

from __future__ import annotations

import functools
import heapq
import ipaddress
import math

import trio

from beeyard.core.errors import HostError
from beeyard.runtime.host_ports import Multicast
from beeyard.runtime.sim_life import Life
from beeyard.runtime.sim_network import NetMachine, Network

# The longest payload of a UDP datagram over IPv4.
PAYLOAD_BYTES_MAX = 65507
# net.core.rmem_default of Linux: what waits to be read, beyond which datagrams are dropped.
BUFFER_BYTES = 212_992


class SimDatagrams:
    """A datagram socket. What it is sent waits until it arrives, and then until it is read."""

    def __init__(
        self,
        network: Network,
        machine: NetMachine,
        life: Life,
        address: tuple[str, int],
        multicast: Multicast | None,
        buffer_bytes: int,
    ) -> None:
        self._network = network
        self._machine = machine
        self._life = life
        self._address = address
        self._multicast = multicast
        self._room_bytes = max(buffer_bytes, BUFFER_BYTES)
        # (when it arrives, order of sending, data, who sent it)
        self._coming: list[tuple[float, int, bytes, tuple[str, int]]] = []
        self._changed = trio.Event()
        self._closed = False
        life.at_end(self.close)

    @property
    def address(self) -> tuple[str, int]:
        """See `Datagrams.address`."""
        return self._address

    @property
    def shares(self) -> bool:
        """Whether another one may have the same port."""
        return self._multicast is not None and self._multicast.share

    def hears(self, host: str) -> bool:
        """Whether datagrams to an address of this machine, or to a group, get here."""
        if _is_group(host):
            groups = self._multicast.groups if self._multicast is not None else ()
            return any(group.address == host for group in groups)
        return True

    def send_nowait(self, to: tuple[str, int], data: bytes) -> bool:
        """See `Datagrams.send_nowait`."""
        if self._closed and self._life.alive:
            raise trio.ClosedResourceError
        host, port = to
        if not self._life.alive or len(data) > PAYLOAD_BYTES_MAX or not 0 < port < 65536 or not _is_address(host):
            return False
        source = (self._machine.ip, self._address[1])
        if _is_group(host):
            targets = list(self._network.machines.values()) if self._network.multicast else []
        else:
            found = self._machine if host in ("127.0.0.1", "::1") else self._network.find(host)
            targets = [found] if found is not None else []
        for target in targets:
            self._network.trace.message(self._machine.name, target.name, data)
            for arrives in self._network.datagram_arrivals_s(self._machine, target):
                for reader in list(target.datagrams.get(port, ())):
                    if reader.hears(host):
                        reader.put(arrives, data, source)
        return True

    async def send(self, to: tuple[str, int], data: bytes) -> bool:
        """See `Datagrams.send`."""
        await self._life.gate()
        return self.send_nowait(to, data)

    async def receive(self) -> tuple[bytes, tuple[str, int]]:
        """See `Datagrams.receive`."""
        while True:
            await self._life.gate()
            try:
                return self.receive_nowait()
            except trio.WouldBlock:
                next_s = self._coming[0][0] if self._coming else math.inf
                with trio.move_on_at(next_s):
                    await self._changed.wait()

    def receive_nowait(self) -> tuple[bytes, tuple[str, int]]:
        """See `Datagrams.receive_nowait`."""
        if self._closed:
            raise trio.ClosedResourceError
        if not self._coming or self._coming[0][0] > trio.current_time() or self._life.paused:
            raise trio.WouldBlock
        _, _, data, source = heapq.heappop(self._coming)
        self._room_bytes += len(data)
        return data, source

    async def aclose(self) -> None:
        """See `Datagrams.aclose`."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`, at once."""
        self._closed = True
        readers = self._machine.datagrams.get(self._address[1], [])
        if self in readers:
            readers.remove(self)
        self._wake()

    def put(self, arrives_s: float, data: bytes, source: tuple[str, int]) -> None:
        """A datagram is on its way here; dropped when too much waits."""
        if len(data) > self._room_bytes:
            return
        self._room_bytes -= len(data)
        heapq.heappush(self._coming, (arrives_s, self._network.next_number(), data, source))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def bind(
    network: Network,
    machine: NetMachine,
    life: Life,
    address: tuple[str, int],
    multicast: Multicast | None,
    buffer_bytes: int,
) -> SimDatagrams:
    """A socket on a machine.

    Raises:
        HostError: somebody else has the port.
    """
    host, port = address[0], address[1] or machine.free_port()
    bound = SimDatagrams(network, machine, life, (host, port), multicast, buffer_bytes)
    readers = machine.datagrams.setdefault(port, [])
    if any(not (reader.shares and bound.shares) for reader in readers):
        raise HostError(f"cannot bind udp://{host}:{port}: address already in use")
    readers.append(bound)
    return bound


@functools.lru_cache(maxsize=4096)
def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_group(host: str) -> bool:
    """IPv4's 224/4 or IPv6's ff00::/8."""
    return host.startswith("ff") if ":" in host else 224 <= int(host.partition(".")[0]) < 240


__all__ = ["SimDatagrams", "bind"]
