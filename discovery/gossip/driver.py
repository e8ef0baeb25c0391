"""Serf's rules on this host's sockets: packets and time in, commands out."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from beeyard.core.errors import HostError, PeerError, RemoteProtocolError
from beeyard.discovery.gossip.command import Exchange, PingByStream, SendPacket
from beeyard.discovery.gossip.exchange import Exchanges
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.quiet_log import QuietLog
from beeyard.discovery.gossip.serf.event import Event
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Datagrams, Host, Listener

# Source: udpRecvBuf in memberlist 0.2.2 net_transport.go.
RECEIVE_BUFFER_BYTES = 2 << 20
# Packets read in one turn before other tasks have theirs: some milliseconds.
PACKETS_PER_TURN = 64
# Exchanges that the rules asked for and that are under way at once. They ask for two a minute at most, and more when many
# members fail at once, each of whom is asked over TCP.
ASKING_MAX = 64
# Timers are not looked at more often, so that none of them keeps the reader from its packets. The rules count in 1 ms.
TICK_S = 0.001
# How often another port is tried when the kernel chose one for TCP that UDP cannot have.
BIND_TRIES = 8


async def bind(host: Host, bind_host: str, port: int) -> tuple[Datagrams, Listener]:
    """UDP and TCP on the same port.

    Raises:
        HostError: one of the two cannot be had; names the address.
    """
    for _ in range(BIND_TRIES if port == 0 else 1):
        listener = await host.net.listen(str(TcpAddress(bind_host, port)))
        try:
            where = parse_address(listener.address)
            assert isinstance(where, TcpAddress)
            udp = f"udp://{str(TcpAddress(bind_host, where.port)).removeprefix('tcp://')}"
            return await host.net.datagrams(udp, receive_buffer_bytes=RECEIVE_BUFFER_BYTES), listener
        except HostError as error:
            failure = error
            await listener.aclose()
        except BaseException:
            with trio.CancelScope(shield=True):
                await listener.aclose()
            raise
    raise failure


class Driver:
    """See the module. Whoever calls the rules calls `act` after it.

    Args:
        on_event: gets what the rules tell the application.
        on_lines: gets lines for the snapshot.
    """

    def __init__(
        self,
        host: Host,
        serf: Serf,
        codec: PacketCodec,
        exchanges: Exchanges,
        datagrams: Datagrams,
        quiet: QuietLog,
        on_event: Callable[[Event], None],
        on_lines: Callable[[list[str]], None],
    ) -> None:
        self.n_packets_sent = self.n_packets_received = self.n_packets_refused = self.n_packets_unsent = 0
        self.n_bytes_sent = self.n_bytes_received = 0
        self.latest_wake_s = 0.0
        self._host = host
        self._serf = serf
        self._codec = codec
        self._exchanges = exchanges
        self._datagrams = datagrams
        self._quiet = quiet
        self._on_event = on_event
        self._on_lines = on_lines
        self._alarm = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._asking = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._read)
            nursery.start_soon(self._watch_time)
            self.act()

    # --- what comes in

    async def _read(self) -> None:
        """Packets, as they come. Nothing in here waits for anything else, so that no ping does."""
        while True:
            self._packet(*await self._datagrams.receive())
            self._read_waiting(PACKETS_PER_TURN)

    def _read_waiting(self, n_most: int) -> None:
        """What has arrived already."""
        try:
            for _ in range(n_most):
                self._packet(*self._datagrams.receive_nowait())
        except trio.WouldBlock:
            pass

    def _packet(self, data: bytes, source: tuple[str, int]) -> None:
        self.n_packets_received += 1
        self.n_bytes_received += len(data)
        try:
            messages = self._codec.unpack(data)
        except RemoteProtocolError as error:
            self.n_packets_refused += 1
            self._quiet.warn("a packet cannot be read", peer=str(Address(*source)), reason=str(error))
            return
        now_s, address = trio.current_time(), Address(*source)
        for message in messages:
            self._serf.handle(now_s, message, address)
        self.act()

    async def _watch_time(self) -> None:
        """The rules' timers."""
        earliest_s = trio.current_time()
        while True:
            with trio.CancelScope(deadline=max(self._serf.next_at(), earliest_s)) as self._alarm:
                await trio.sleep_forever()
            await self._host.running()
            # After a stall of this process or machine answers lie waiting: they are heard before anybody is judged.
            self._read_waiting(16 * PACKETS_PER_TURN)
            now_s = trio.current_time()
            if math.isfinite(self._alarm.deadline):  # -inf: at once, which was no time to be late for
                self.latest_wake_s = max(self.latest_wake_s, now_s - self._alarm.deadline)
            self._serf.advance(now_s)
            self.act()
            earliest_s = now_s + TICK_S

    # --- what is to be done

    def act(self) -> None:
        """Do what the rules have left behind, and set the alarm to when they want to be woken."""
        serf = self._serf
        while serf.out:
            commands, serf.out[:] = list(serf.out), []
            for command in commands:
                match command:
                    case SendPacket(to=to, parts=parts, crc=crc):
                        self._send(to, self._codec.pack(parts, crc=crc))
                    case PingByStream():
                        self._ask(self._ping, command)
                    case Exchange():
                        self._ask(self._exchange, command)
        while serf.events:
            events, serf.events[:] = list(serf.events), []
            for event in events:
                self._on_event(event)
        if serf.snapshot_lines:
            lines, serf.snapshot_lines[:] = list(serf.snapshot_lines), []
            self._on_lines(lines)
        next_at = serf.next_at()
        if next_at < self._alarm.deadline or self._alarm.deadline == math.inf:
            self._alarm.deadline = next_at

    def _send(self, to: Address, data: bytes) -> None:
        self.n_packets_sent += 1
        self.n_bytes_sent += len(data)
        if not self._datagrams.send_nowait(to, data):
            self.n_packets_unsent += 1
            self._quiet.warn("a packet cannot be sent", peer=str(to))

    def _ask(self, ask: Callable[..., object], command: PingByStream | Exchange) -> None:
        if self._nursery is None or self._asking >= ASKING_MAX:
            return
        self._asking += 1
        self._nursery.start_soon(ask, command)  # type: ignore[arg-type]

    async def _ping(self, command: PingByStream) -> None:
        try:
            await self._exchanges.ping(command.to, command.ping, command.seq_no, command.timeout_s)
        finally:
            self._asking -= 1

    async def _exchange(self, command: Exchange) -> None:
        try:
            await self._exchanges.push_pull(command.to, join=command.join)
        except PeerError as error:
            self._quiet.warn("an exchange with a member failed", peer=str(command.to), reason=str(error))
        finally:
            self._asking -= 1

    def figures(self) -> dict[str, float]:
        """Counters of what was sent and received, and the longest time (s) by which a timer was late."""
        return {
            "packets_sent": self.n_packets_sent,
            "packets_received": self.n_packets_received,
            "packets_refused": self.n_packets_refused,
            "packets_unsent": self.n_packets_unsent,
            "packet_bytes_sent": self.n_bytes_sent,
            "packet_bytes_received": self.n_bytes_received,
            "stream_bytes_sent": self._exchanges.n_bytes_sent,
            "stream_bytes_received": self._exchanges.n_bytes_received,
            "streams_served": self._exchanges.n_served,
            "streams_refused": self._exchanges.n_refused,
            "streams_failed": self._exchanges.n_failed,
            "warnings": self._quiet.n_warnings,
            "latest_wake_s": self.latest_wake_s,
        }


__all__ = ["Driver", "bind"]
