"""Gossip among hundreds of members in one process: how long a death takes to be seen by all, and what a member sends.

The rules are the ones that daemons run, driven by a heap of events instead of sockets: packets are packed, lost, delayed and
unpacked, exchanges are framed. One seed gives one result.

    .venv/bin/python -m benchmarks.gossip_sim --json gossip.json --chart docs/gossip-scale.png
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import json
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from beeyard.discovery.gossip.command import Exchange, PingByStream, SendPacket
from beeyard.discovery.gossip.message import Ack, Address, IndirectPing, Message, Nack, Ping
from beeyard.discovery.gossip.serf.event import MemberFailed
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.swim.config import LAN
from beeyard.discovery.gossip.wire import codec
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.gossip.wire.stream import frame
from beeyard.runtime.identifier import new_id

# One way, as in a LAN of some switches with busy hosts.
DELAY_S = (0.0002, 0.002)
# Ethernet, IPv4 and UDP; and what a TCP exchange takes beside its data: nine packets of 40 bytes above Ethernet's 14.
PACKET_OVERHEAD_BYTES = 42
STREAM_OVERHEAD_BYTES = 9 * 54
SIZES = (100, 300, 500, 1000)
# Within it every member begins its first push/pull, and no second one: what TCP carries is counted, and spread over the
# interval from one to the next.
QUIET_S = LAN.push_pull_interval_s
DEATHS = 3
# So many members miss all news for so long, while somebody joins.
DEAF = 5
DEAF_S = 4.0


# What a member that news does not reach gets all the same.
ANSWERS = (Ping, Ack, IndirectPing, Nack)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster did. Times in seconds, traffic in bytes a second and member, headers included."""

    members: int
    loss: float
    detect_median_s: float  # from a death until all others have it as failed
    detect_max_s: float
    spread_max_s: float  # between the first and the last that has
    false_failures: int
    idle_packets_bytes_s: float
    idle_streams_bytes_s: float
    idle_packets_s: float
    missed_median_s: float  # from a join until those that gossip has passed by know of it
    missed_max_s: float


class Cluster:
    """Members that know each other, and the network between them."""

    def __init__(
        self, n_members: int, *, seed: int = 1, loss: float = 0.0, delay_s: tuple[float, float] = DELAY_S
    ) -> None:
        self.now_s = 0.0
        self.n_packets = self.packet_bytes = self.ping_bytes = self.stream_bytes = 0
        self.failures: list[tuple[float, str, str]] = []  # when, who saw it, who failed
        self._rng = random.Random(f"{seed}/network")
        self._loss = loss
        self._delay_s = delay_s
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm_s: dict[str, float] = {}
        self._codec = PacketCodec(compress=False)
        self.members: dict[str, Serf] = {}
        self._names: dict[Address, str] = {}
        self._seed = seed
        self._cluster = "".join(new_id(self._rng) for _ in range(2))
        self.deaf: frozenset[str] = frozenset()  # who hears answers and questions, and no news
        for number in range(n_members):
            self.add(number)

    def add(self, number: int) -> Serf:
        """A member that knows nobody, with the tags that a daemon has."""
        name, address = f"n{number:04}", Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7946)
        rng = random.Random(f"{self._seed}/{name}")
        tags = {"cluster": self._cluster, "role": "agent", "node": new_id(rng)}
        serf = Serf(self.now_s, name=name, address=address, tags=tags, rng=rng)
        self.members[name] = serf
        self._names[address] = name
        self._alarm_s[name] = float("inf")
        return serf

    def join(self, name: str, other: str) -> None:
        """Have one join the other."""
        self.members[name].join(self.now_s, self.members[other].me.address)
        self._act(name)

    def introduce(self) -> None:
        """Let everybody know everybody, as after a join long ago: what each would tell of it is not told again."""
        first, *others = self.members.values()
        for serf in others:
            first.merge(self.now_s, serf.push_pull(self.now_s, join=False), join=False)
        everybody = first.push_pull(self.now_s, join=False)
        for serf in others:
            serf.merge(self.now_s, everybody, join=False)
        for name, serf in self.members.items():
            serf.forget_broadcasts()
            serf.events.clear()
            self._act(name)

    def kill(self, name: str) -> None:
        """A host is gone, with all that is under way to it."""
        del self.members[name]

    def run_until(self, end_s: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= end_s and not done():
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        if not done():
            self.now_s = end_s

    # --- the network

    def _at(self, when_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_s, next(self._numbers), event))

    def _later(self, event: Callable[[], None]) -> None:
        self._at(self.now_s + self._rng.uniform(*self._delay_s), event)

    def _act(self, name: str) -> None:
        """Carry out what a member's rules have left behind."""
        serf = self.members[name]
        while serf.out:
            commands, serf.out[:] = list(serf.out), []
            for command in commands:
                match command:
                    case SendPacket():
                        self._send(name, command)
                    case PingByStream():
                        self._later(functools.partial(self._stream_ping, name, command))
                    case Exchange():
                        self._later(functools.partial(self._exchange, name, command))
        for event in serf.events:
            if isinstance(event, MemberFailed):
                self.failures.append((self.now_s, name, event.member.name))
        serf.events.clear()
        next_s = serf.next_at()
        if next_s < self._alarm_s[name]:
            self._alarm_s[name] = next_s
            self._at(max(next_s, self.now_s), functools.partial(self._ring, name, next_s))

    def _ring(self, name: str, when_s: float) -> None:
        if name in self.members and self._alarm_s[name] == when_s:
            self._alarm_s[name] = float("inf")
            self.members[name].advance(self.now_s)
            self._act(name)

    def _send(self, name: str, command: SendPacket) -> None:
        data = self._codec.pack(command.parts, crc=command.crc)
        self.n_packets += 1
        self.packet_bytes += len(data) + PACKET_OVERHEAD_BYTES
        if self._rng.random() >= self._loss:
            self._later(functools.partial(self._arrive, self.members[name].me.address, command))

    def _arrive(self, source: Address, command: SendPacket) -> None:
        name = self._names.get(command.to, "")
        if name in self.members:
            for message in map(decoded, command.parts):
                if name not in self.deaf or isinstance(message, ANSWERS):
                    self.members[name].handle(self.now_s, message, source)
            self._act(name)

    def _stream_ping(self, name: str, command: PingByStream) -> None:
        self.ping_bytes += STREAM_OVERHEAD_BYTES
        if name in self.members and self._names.get(command.to) in self.members:
            self.members[name].stream_ack(self.now_s, command.seq_no)
            self._act(name)

    def _exchange(self, name: str, command: Exchange) -> None:
        other = self._names.get(command.to, "")
        if name in self.members and other in self.members:
            asked = self.members[name].push_pull(self.now_s, join=command.join)
            answer = self.members[other].push_pull(self.now_s, join=command.join)
            self.stream_bytes += STREAM_OVERHEAD_BYTES
            for serf, state in ((self.members[name], asked), (self.members[other], answer)):
                n_bytes = len(frame(state))
                self.stream_bytes += n_bytes
                serf.state_sent(n_bytes)
            self.members[other].merge(self.now_s, asked, join=command.join)
            self.members[name].merge(self.now_s, answer, join=command.join)
            if command.join:
                self.members[name].joined(self.now_s)
            self._act(other)
            self._act(name)


@functools.lru_cache(maxsize=1 << 16)
def decoded(part: bytes) -> Message:
    """A message, which its many receivers share: they are not changed."""
    return codec.decode(part)


def measure(n_members: int, *, loss: float = 0.0, seed: int = 1, deaths: int = DEATHS) -> Result:
    """Look at a cluster of this size: idle first, then with some members dying one after the other."""
    cluster = Cluster(n_members, seed=seed, loss=loss)
    cluster.introduce()
    cluster.run_until(QUIET_S)
    intervals_s = [serf.figures()["exchange_interval_s"] for serf in cluster.members.values()]
    packets_share, streams_share = n_members * QUIET_S, n_members * statistics.mean(intervals_s)
    idle = (
        cluster.packet_bytes / packets_share,
        cluster.stream_bytes / streams_share + cluster.ping_bytes / packets_share,
        cluster.n_packets / packets_share,
    )
    missed = miss(cluster, n_members)
    detections: list[float] = []
    spreads: list[float] = []
    rng = random.Random(f"{seed}/deaths")
    dead: list[str] = []
    for victim in rng.sample(sorted(cluster.members), deaths):
        died_s = cluster.now_s
        cluster.kill(victim)
        dead.append(victim)

        def seen(victim: str = victim) -> list[float]:
            return [when_s for when_s, _, name in cluster.failures if name == victim]

        cluster.run_until(died_s + 120.0, lambda: len(seen()) >= len(cluster.members))
        detections.append(seen()[-1] - died_s if len(seen()) >= len(cluster.members) else float("inf"))
        spreads.append(seen()[-1] - seen()[0])
        cluster.run_until(cluster.now_s + 5.0)
    return Result(
        members=n_members,
        loss=loss,
        detect_median_s=round(statistics.median(detections), 2),
        detect_max_s=round(max(detections), 2),
        spread_max_s=round(max(spreads), 2),
        false_failures=sum(name not in dead for _, _, name in cluster.failures),
        idle_packets_bytes_s=round(idle[0], 1),
        idle_streams_bytes_s=round(idle[1], 1),
        idle_packets_s=round(idle[2], 2),
        missed_median_s=round(statistics.median(missed), 1),
        missed_max_s=round(max(missed), 1),
    )


def miss(cluster: Cluster, number: int) -> list[float]:
    """How long it takes until members know of one that joined while gossip did not reach them."""
    name, *deaf = random.Random(f"{number}/deaf").sample(sorted(cluster.members), DEAF + 1)
    cluster.deaf = frozenset(deaf)
    newcomer = cluster.add(number).me.name
    joined_s = cluster.now_s
    cluster.join(newcomer, name)
    known_s: dict[str, float] = {}

    def all_know() -> bool:
        for other in deaf:
            if other not in known_s and cluster.members[other].member(newcomer) is not None:
                known_s[other] = cluster.now_s - joined_s
        return len(known_s) == DEAF

    cluster.run_until(joined_s + DEAF_S, all_know)
    cluster.deaf = frozenset()
    cluster.run_until(joined_s + 3600.0, all_know)
    return [known_s.get(other, float("inf")) for other in deaf]


def draw(results: Sequence[Result], target: str) -> None:
    """The chart of docs/benchmarks.md."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (times, traffic) = pyplot.subplots(1, 2, figsize=(10, 4.2), dpi=110)
    for loss, (marker, colour) in zip(
        sorted({r.loss for r in results}), (("o", "#1b6ca8"), ("s", "#d1495b")), strict=False
    ):
        rows = [r for r in results if r.loss == loss]
        sizes = [r.members for r in rows]
        label = f"{loss:.0%} loss"
        times.plot(sizes, [r.detect_median_s for r in rows], marker=marker, color=colour, label=label)
        times.plot(sizes, [r.detect_max_s for r in rows], marker=marker, color=colour, linestyle=":", alpha=0.5)
        traffic.plot(sizes, [r.idle_packets_bytes_s for r in rows], marker=marker, color=colour, label=f"UDP, {label}")
        total = [r.idle_packets_bytes_s + r.idle_streams_bytes_s for r in rows]
        traffic.plot(sizes, total, marker=marker, color=colour, linestyle=":", alpha=0.5, label=f"with TCP, {label}")
    times.set(xlabel="members", ylabel="seconds", ylim=(0, None), title="A host dies: failed for all (dotted: slowest)")
    traffic.set(
        xlabel="members", ylabel="bytes a second and member", ylim=(0, None), title="Sent by a member when idle"
    )
    for axes in (times, traffic):
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    for axis in (times.xaxis, traffic.xaxis):
        axis.set_ticks(sorted({r.members for r in results}))
    figure.tight_layout()
    figure.savefig(target, metadata={"Software": None})


def main() -> None:
    """Measure, print a table, write the figures and the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--loss", type=float, nargs="+", default=(0.0,))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--chart")
    parser.add_argument("--read", nargs="+", help="measure nothing, draw what --json wrote to these files")
    options = parser.parse_args()
    if options.read:
        draw(
            [row for path in options.read for row in msgspec.json.decode(Path(path).read_bytes(), type=list[Result])],
            options.chart,
        )
        return
    results = []
    print("members  loss  detect median / max s  spread s  false  UDP B/s  TCP B/s  packets/s  missed median / max s")
    for loss in options.loss:
        for size in options.sizes:
            r = measure(size, loss=loss, seed=options.seed)
            results.append(r)
            print(
                f"{size:7}  {loss:4.0%}  {r.detect_median_s:8.1f} / {r.detect_max_s:5.1f}       {r.spread_max_s:6.2f}  "
                f"{r.false_failures:5}  {r.idle_packets_bytes_s:7.0f}  {r.idle_streams_bytes_s:7.0f}  "
                f"{r.idle_packets_s:9.2f}  {r.missed_median_s:8.1f} / {r.missed_max_s:5.1f}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps(msgspec.to_builtins(results), indent=1) + "\n")
    if options.chart:
        draw(results, options.chart)


if __name__ == "__main__":
    main()
