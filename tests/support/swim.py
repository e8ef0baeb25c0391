"""Memberlists for tests: one alone with a delegate that takes notes, and many in a network in memory."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush

from beeyard.discovery.gossip.command import Command, Exchange, PingByStream, SendPacket
from beeyard.discovery.gossip.message import Ack, Address, Alive, Dead, Message, NodeRecord, Ping, Suspect
from beeyard.discovery.gossip.swim import LAN, VSN, Config, Memberlist
from beeyard.discovery.gossip.wire.codec import decode

HEADERS_BYTES = 28  # IPv4 and UDP


class Notes:
    """A delegate that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []  # what happened, to whom
        self.records: list[NodeRecord] = []  # of `told`
        self.user: list[bytes] = []
        self.states: list[bytes] = []
        self.rtts: list[tuple[str, float, bytes]] = []
        self.my_meta = b""
        self.waiting: list[bytes] = []  # to broadcast, each once
        self.unwelcome: tuple[str, ...] = ()

    def meta(self) -> bytes:
        return self.my_meta

    def notify_message(self, data: bytes) -> None:
        self.user.append(data)

    def broadcasts(self, overhead: int, limit: int) -> list[bytes]:
        taken = []
        while self.waiting and len(self.waiting[0]) + overhead <= limit:
            limit -= len(self.waiting[0]) + overhead
            taken.append(self.waiting.pop(0))
        return taken

    def local_state(self, *, join: bool) -> bytes:
        return b"joining" if join else b"state"

    def merge_remote_state(self, data: bytes, *, join: bool) -> None:
        self.states.append(data)

    def notify_join(self, node: NodeRecord) -> None:
        self._note("join", node)

    def notify_leave(self, node: NodeRecord) -> None:
        self._note("left" if node.state == 3 else "failed", node)

    def notify_update(self, node: NodeRecord) -> None:
        self._note("update", node)

    def notify_conflict(self, existing: NodeRecord, other: NodeRecord) -> None:
        self._note("conflict", other)

    def is_welcome(self, alive: Alive) -> bool:
        return alive.node not in self.unwelcome

    def ack_payload(self) -> bytes:
        return b"here"

    def notify_ping_complete(self, name: str, rtt_s: float, payload: bytes) -> None:
        self.rtts.append((name, rtt_s, payload))

    def _note(self, what: str, node: NodeRecord) -> None:
        self.told.append((what, node.name))
        self.records.append(node)


def taken(rules: Memberlist) -> list[Command]:
    """What a member wants, as a driver takes it."""
    commands, rules.out[:] = list(rules.out), []
    return commands


def address_of(number: int) -> Address:
    """Where the member of this number is."""
    return Address(f"10.0.{number // 250}.{number % 250 + 1}", 7946)


class Scene:
    """One member ("me") in front of scripted others, whose addresses are told by `at`."""

    def __init__(self, *others: str, seed: int = 1, config: Config = LAN, now_s: float = 100.0) -> None:
        self.now_s = now_s
        self.notes = Notes()
        self.rules = Memberlist("me", Address("10.9.9.9", 7946), self.notes, random.Random(seed), config=config)
        self.rules.start(now_s)
        for name in others:
            self.hear(alive(name))
        self.settle()
        self.notes.told.clear()
        self.notes.records.clear()

    def hear(self, *messages: Message, source: Address | None = None) -> None:
        """Messages come, in one datagram."""
        for message in messages:
            self.rules.handle(self.now_s, message, source or at("stranger"))

    def drain(self) -> list[Command]:
        """What is wanted since last time."""
        return taken(self.rules)

    def settle(self) -> None:
        """Let all news go out, at this very moment: the clock stands."""
        while self.rules.n_queued:
            before = self.rules.n_queued
            self.rules._mail.gossip(self.now_s)
            if self.rules.n_queued == before and not self.rules.out:
                break
            self.drain()
        self.drain()

    def until(self, until_s: float) -> list[Command]:
        """Advance in steps to this time, as a driver does; what was wanted on the way."""
        wanted = self.drain()
        while self.rules.next_at() <= until_s:
            self.now_s = max(self.now_s, self.rules.next_at())
            self.rules.advance(self.now_s)
            wanted += self.drain()
        self.now_s = until_s
        return wanted

    def until_probe(self, name: str = "") -> Ping:
        """Advance to the next probe (of this member)."""
        for _ in range(1000):
            self.now_s = max(self.now_s, self.rules.next_at())
            self.rules.advance(self.now_s)
            for message, to in messages_of(self.drain()):
                if isinstance(message, Ping) and name in ("", message.node):
                    assert to == at(message.node)
                    return message
                if isinstance(message, Ping):
                    self.hear(Ack(seq_no=message.seq_no), source=to)
        raise AssertionError(f"{name!r} was not probed")

    def state(self, name: str) -> str:
        """What is believed of a member."""
        record = self.rules.member(name)
        return "unknown" if record is None else ("alive", "suspect", "dead", "left")[record.state]

    def said(self) -> list[Message]:
        """What waits to be sent, and what is told in a round of gossip at this very moment, without where."""
        self.rules._mail.gossip(self.now_s)
        return [message for message, _ in messages_of(self.drain())]


def at(name: str) -> Address:
    """Where somebody in a `Scene` is."""
    return Address(f"10.1.{sum(name.encode()) % 250}.{len(name)}", 7946)


def alive(name: str, incarnation: int = 1, **changes: object) -> Alive:
    """What a member says of itself."""
    fields: dict[str, object] = {"address": at(name), "vsn": VSN, **changes}
    return Alive(incarnation=incarnation, node=name, **fields)  # type: ignore[arg-type]


def suspect(name: str, incarnation: int = 1, by: str = "x") -> Suspect:
    """Somebody does not hear from a member."""
    return Suspect(incarnation=incarnation, node=name, from_node=by)


def dead(name: str, incarnation: int = 1, by: str = "x") -> Dead:
    """Somebody takes a member for dead."""
    return Dead(incarnation=incarnation, node=name, from_node=by)


def messages_of(commands: list[Command]) -> list[tuple[Message, Address]]:
    """All messages of packets, with where they go."""
    return [
        (decode(part), command.to) for command in commands if isinstance(command, SendPacket) for part in command.parts
    ]


class Host:
    """One member in a `Network`."""

    def __init__(self, number: int, config: Config, rng: random.Random) -> None:
        self.name = f"n{number}"
        self.address = address_of(number)
        self.notes = Notes()
        self.rules = Memberlist(self.name, self.address, self.notes, rng, config=config)
        self.is_running = True
        self.is_frozen = False
        self.inbox: list[tuple[Message, Address]] = []  # of a frozen one
        self.waits: list[tuple[float, PingByStream, Host]] = []  # pings over TCP that a frozen one has accepted
        self.wake_s = math.inf
        self.log: list[tuple[float, str, str]] = []  # when what happened to whom
        self.n_packets = 0
        self.n_bytes = 0

    def note_time(self, now_s: float) -> None:
        """Give what the delegate was told since last time a time."""
        told = self.notes.told
        self.log.extend((now_s, what, who) for what, who in told[len(self.log) :])

    def drain(self) -> list[Command]:
        """What is wanted since last time."""
        return taken(self.rules)

    def knows(self) -> int:
        """How many members are alive to it."""
        return self.rules.n_alive


class Network:
    """Members, packets that take a millisecond, and TCP. A discrete event loop: nothing but the rules takes time."""

    def __init__(self, n_hosts: int, *, seed: int = 1, config: Config = LAN, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.loss = loss
        self.config = config
        self.hosts = [Host(number, config, random.Random(f"{seed}/{number}")) for number in range(n_hosts)]
        self.at = {host.address: host for host in self.hosts}
        self.cut: set[str] = set()  # names without a network
        self.refuses_when_dead = True
        self._n = 0
        self._events: list[tuple[float, int, object]] = []
        for host in self.hosts:
            host.rules.start(0.0)
            self._act(host)

    # --- stories ---

    def joined(self) -> Network:
        """All of them in one cluster, and quiet."""
        for number, host in enumerate(self.hosts[1:], 1):
            self.after(number * 0.01, lambda host=host: self.join(host, self.hosts[0]))
        self.run(20.0)
        assert all(host.knows() == len(self.hosts) for host in self.hosts)
        return self

    def join(self, host: Host, other: Host) -> None:
        host.rules.join_exchange(other.address)
        self._act(host)

    def kill(self, host: Host) -> None:
        host.is_running = False

    def restart(self, host: Host) -> Host:
        """Start anew in its place, without a memory."""
        number = self.hosts.index(host)
        new = Host(number, self.config, random.Random(f"{number} again"))
        self.hosts[number] = self.at[new.address] = new
        new.rules.start(self.now_s)
        self._act(new)
        return new

    def leave(self, host: Host) -> None:
        host.rules.leave(self.now_s)
        self._act(host)

    def freeze(self, host: Host, for_s: float) -> None:
        """Stop its process: the kernel goes on taking packets and connections for it."""
        host.is_frozen = True
        self.after(for_s, lambda: self._thaw(host))

    def _thaw(self, host: Host) -> None:
        host.is_frozen = False
        host.rules.advance(self.now_s)  # the worst order: timers before what has arrived
        for message, source in host.inbox:
            host.rules.handle(self.now_s, message, source)
        host.inbox.clear()
        for until_s, ping, asker in host.waits:
            if self.now_s <= until_s:
                self._ack_stream(host, ping, asker)
        host.waits.clear()
        self._act(host)

    def after(self, delay_s: float, action: object) -> None:
        """Call it later."""
        self._n += 1
        heappush(self._events, (self.now_s + delay_s, self._n, action))

    def run(self, for_s: float) -> None:
        """Let time pass."""
        end_s = self.now_s + for_s
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, action = heappop(self._events)
            action()  # type: ignore[operator]
        self.now_s = end_s

    # --- what hosts do ---

    def _act(self, host: Host) -> None:
        host.note_time(self.now_s)
        for command in host.drain():
            self._carry_out(host, command)
        self._arrange_wake(host)

    def _arrange_wake(self, host: Host) -> None:
        next_s = max(self.now_s, host.rules.next_at())
        if next_s < host.wake_s:
            host.wake_s = next_s
            self.after(next_s - self.now_s, lambda: self._wake(host, next_s))

    def _wake(self, host: Host, due_s: float) -> None:
        if host.wake_s == due_s:
            host.wake_s = math.inf
            if host.is_running and not host.is_frozen:
                if host.rules.next_at() <= self.now_s:
                    host.rules.advance(self.now_s)
                self._act(host)

    def _carry_out(self, host: Host, command: Command) -> None:
        if host.name in self.cut:
            return
        if isinstance(command, SendPacket):
            host.n_packets += 1
            framing = 2 + 2 * len(command.parts) if len(command.parts) > 1 else 0
            host.n_bytes += HEADERS_BYTES + framing + 5 * command.crc + sum(map(len, command.parts))
            if self.rng.random() >= self.loss:
                messages = [decode(part) for part in command.parts]
                self.after(0.001 + self.rng.random() * 0.001, lambda: self._deliver(command.to, messages, host.address))
        elif isinstance(command, PingByStream):
            self.after(0.002, lambda: self._ping_by_stream(host, command))
        elif isinstance(command, Exchange):
            self.after(0.003, lambda: self._exchange(host, command))

    def _deliver(self, to: Address, messages: list[Message], source: Address) -> None:
        host = self.at.get(to)
        if host is None or not host.is_running or host.name in self.cut:
            return
        if host.is_frozen:
            host.inbox += [(message, source) for message in messages]
            return
        for message in messages:
            host.rules.handle(self.now_s, message, source)
        self._act(host)

    def _ping_by_stream(self, host: Host, command: PingByStream) -> None:
        target = self.at[command.to]
        if target.name in self.cut or host.name in self.cut:
            return
        if not target.is_running:
            if self.refuses_when_dead:
                host.rules.stream_refused(self.now_s, command.seq_no)
        elif target.is_frozen:
            target.waits.append((self.now_s + command.timeout_s, command, host))
        else:
            self._ack_stream(target, command, host)

    def _ack_stream(self, target: Host, command: PingByStream, asker: Host) -> None:
        assert isinstance(command.ping, Ping)
        answer = target.rules.answer_stream_ping(command.ping)
        if isinstance(answer, Ack) and asker.is_running and not asker.is_frozen:
            asker.rules.stream_ack(self.now_s, answer.seq_no)
            self._act(asker)

    def _exchange(self, host: Host, command: Exchange) -> None:
        other = self.at[command.to]
        if not (host.is_running and other.is_running) or host.is_frozen or other.is_frozen:
            return
        if host.name in self.cut or other.name in self.cut:
            return
        asked = host.rules.push_pull(self.now_s, command.join)
        answer = other.rules.push_pull(self.now_s, command.join)
        other.rules.merge(self.now_s, asked, command.join)
        host.rules.merge(self.now_s, answer, command.join)
        self._act(host)
        self._act(other)

    # --- what came of it ---

    def seen(self, what: str, who: str, *, since_s: float = 0.0) -> list[float]:
        """When each running member that was told this was told it first."""
        times = []
        for host in self.hosts:
            if host.is_running and host.name != who:
                times += [at_s for at_s, kind, name in host.log if kind == what and name == who and at_s >= since_s][:1]
        return times

    def failures(self) -> list[tuple[str, str]]:
        """Who took whom for dead."""
        return [(host.name, name) for host in self.hosts for _, kind, name in host.log if kind == "failed"]


__all__ = ["Host", "Network", "Notes", "Scene", "address_of", "alive", "at", "dead", "messages_of", "suspect"]
