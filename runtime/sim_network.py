"""The simulated network between machines: who reaches whom, how fast, and every connection that exists."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from beeyard.runtime.sim_life import Life
from beeyard.runtime.sim_stream import Endpoint, Pipe
from beeyard.runtime.sim_trace import Trace

if TYPE_CHECKING:
    from beeyard.runtime.sim_datagrams import SimDatagrams
    from beeyard.runtime.sim_net import SimListener

# A LAN with a switch or two.
DELAY_S = (0.0002, 0.002)
LOOPBACK_S = 0.00002
# Times of arrival are rounded up to ticks, so that one wake-up serves what arrives together.
TICK_S = 0.0001
# TCP's first repetition of a lost segment; each further one takes twice as long.
REPEAT_S = 0.2


class NetMachine:
    """What the network knows of a machine."""

    def __init__(self, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.on = True
        self.tcp_listeners: dict[int, SimListener] = {}
        self.unix_listeners: dict[str, SimListener] = {}
        self.datagrams: dict[int, list[SimDatagrams]] = {}  # by port
        self._last_port = 40_000

    def free_port(self) -> int:
        """A port that nobody uses."""
        self._last_port += 1
        return self._last_port


@dataclasses.dataclass(frozen=True, eq=False)
class DirectedWay:
    """From one machine to another."""

    network: Network
    source: NetMachine
    target: NetMachine

    def arrival_s(self) -> float:
        """See `Way.arrival_s`."""
        return self.network.arrival_s(self.source, self.target)

    def sent(self, data: bytes) -> None:
        """See `Way.sent`."""
        self.network.trace.message(self.source.name, self.target.name, data)


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A connection: its two machines and ends."""

    client: NetMachine
    server: NetMachine
    client_end: Endpoint
    server_end: Endpoint
    to_server: Pipe
    to_client: Pipe

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Both."""
        return self.client_end, self.server_end


class Network:
    """All machines and connections of a world."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.trace = trace
        self.delay_s = DELAY_S
        self.loss = 0.0  # share of segments that are lost, each time they are sent
        self.datagram_loss = 0.0  # share of datagrams that never arrive, beside those of `loss`
        self.datagrams_twice = 0.0  # share of datagrams that arrive twice
        self.multicast = True  # whether the switches pass on what is sent to groups
        self.extra_delay_s: dict[tuple[str, str], float] = {}
        self.machines: dict[str, NetMachine] = {}
        self._rng = rng
        self._blocked: dict[tuple[str, str], None] = {}
        self._pairs: dict[int, Pair] = {}
        self._n_pairs = 0
        self._n_datagrams = 0

    # --- machines and ways

    def add(self, machine: NetMachine) -> None:
        """A new machine."""
        self.machines[machine.name] = machine

    def find(self, host: str) -> NetMachine | None:
        """By name or IP."""
        if host in self.machines:
            return self.machines[host]
        return next((machine for machine in self.machines.values() if machine.ip == host), None)

    def is_free(self, source: NetMachine, target: NetMachine) -> bool:
        """Whether bytes get from one to the other."""
        return source.on and target.on and (source.name, target.name) not in self._blocked

    def arrival_s(self, source: NetMachine, target: NetMachine) -> float:
        """When what is sent now arrives; infinity when it does not."""
        now = trio.current_time()
        if source is target:
            return now + LOOPBACK_S
        if not self.is_free(source, target):
            return math.inf
        delay_s = self._rng.uniform(*self.delay_s) + self.extra_delay_s.get((source.name, target.name), 0.0)
        repeat_s = REPEAT_S
        while self.loss and self._rng.random() < self.loss:
            delay_s += repeat_s
            repeat_s *= 2
        return math.ceil((now + delay_s) / TICK_S) * TICK_S

    def datagram_arrivals_s(self, source: NetMachine, target: NetMachine) -> list[float]:
        """When a datagram that is sent now arrives: never, once, or twice. One may overtake another."""
        if source is target:
            return [trio.current_time() + LOOPBACK_S]
        arrivals: list[float] = []
        if self.is_free(source, target):
            for share in (1.0, self.datagrams_twice):
                if share and (share == 1.0 or self._rng.random() < share):
                    lost = self.loss + self.datagram_loss
                    if not lost or self._rng.random() >= lost:
                        delay_s = self._rng.uniform(*self.delay_s)
                        delay_s += self.extra_delay_s.get((source.name, target.name), 0.0)
                        arrivals.append(math.ceil((trio.current_time() + delay_s) / TICK_S) * TICK_S)
        return arrivals

    def next_number(self) -> int:
        """A number for the next datagram; they only rise."""
        self._n_datagrams += 1
        return self._n_datagrams

    def block(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Nothing gets from these machines to those. A machine always reaches itself."""
        for source in sources:
            for target in targets:
                if source != target and (source, target) not in self._blocked:
                    self._blocked[source, target] = None
                    for pipe in self._pipes(self.machines[source], self.machines[target]):
                        pipe.stall()

    def unblock(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Undo `block`."""
        for source in sources:
            for target in targets:
                if (source, target) in self._blocked:
                    del self._blocked[source, target]
                    self._flow(self.machines[source], self.machines[target])

    def unblock_all(self) -> None:
        """Every way is free again."""
        for source, target in list(self._blocked):
            self.unblock([source], [target])

    def power_off(self, machine: NetMachine) -> None:
        """A machine loses power: its ends vanish, nobody is told, and it answers no more."""
        machine.on = False
        machine.tcp_listeners.clear()
        machine.unix_listeners.clear()
        for bound in [reader for readers in machine.datagrams.values() for reader in readers]:
            bound.close()
        for pair in list(self._pairs.values()):
            for own, end in ((pair.client, pair.client_end), (pair.server, pair.server_end)):
                if own is machine and not end.closed:
                    end.vanish()
        for other in self.machines.values():
            for pipe in self._pipes(other, machine):
                pipe.stall()

    def power_on(self, machine: NetMachine) -> None:
        """It answers again, with resets to who thinks that he is connected."""
        machine.on = True
        for other in self.machines.values():
            self._flow(other, machine)

    # --- connections

    def connect(
        self,
        client: NetMachine,
        client_life: Life | None,
        server: NetMachine,
        server_life: Life,
        names: tuple[str, str],
    ) -> Pair:
        """A new connection; `names`: what the client and the server call the other side."""
        to_server = Pipe(DirectedWay(self, client, server))
        to_client = Pipe(DirectedWay(self, server, client))
        pair = Pair(
            client=client,
            server=server,
            client_end=Endpoint(client_life, to_client, to_server, names[0]),
            server_end=Endpoint(server_life, to_server, to_client, names[1]),
            to_server=to_server,
            to_client=to_client,
        )
        self._n_pairs += 1
        number = self._n_pairs
        self._pairs[number] = pair
        if number % 64 == 0:  # forget what both sides have closed
            self._pairs = {n: p for n, p in self._pairs.items() if not all(end.closed for end in p.ends)}
        return pair

    def cut(self, one: str, other: str) -> None:
        """Break every connection between two machines, both sides at once, as a firewall that restarts does."""
        now = trio.current_time()
        for pair in self._pairs.values():
            if {pair.client.name, pair.server.name} == {one, other}:
                for end in pair.ends:
                    end.break_at(now, "connection reset by peer")

    def process_gone(self, life: Life) -> None:
        """A daemon died: its kernel stops listening and ends its connections, with an end or with a reset."""
        for machine in self.machines.values():
            for listener in (*machine.tcp_listeners.values(), *machine.unix_listeners.values()):
                if listener.life is life:
                    listener.close()
        for pair in list(self._pairs.values()):
            for own, peer in ((pair.client_end, pair.server_end), (pair.server_end, pair.client_end)):
                if own.life is life and not own.closed:
                    if self._rng.random() < 0.5:
                        own.close()
                    else:
                        own.reset(peer)
                    own.wake()

    def _flow(self, source: NetMachine, target: NetMachine) -> None:
        if self.is_free(source, target):
            for pipe in self._pipes(source, target):
                pipe.flow(lambda longest: self._rng.uniform(0.0, longest) + DELAY_S[1])

    def _pipes(self, source: NetMachine, target: NetMachine) -> Iterator[Pipe]:
        for pair in self._pairs.values():
            if pair.client is source and pair.server is target:
                yield pair.to_server
            if pair.server is source and pair.client is target:
                yield pair.to_client


__all__ = ["DirectedWay", "NetMachine", "Network", "Pair"]
