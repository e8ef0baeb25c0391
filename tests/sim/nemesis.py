"""Faults drawn from a seed: what breaks, when, how often, and for how long.

Swarm testing: a seed first draws which kinds of fault exist at all and how often each comes, so that some runs are all
partitions and others all crashes. Each fault heals itself after a while that may be longer than any timeout.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from beeyard.manager.orchestrators.isolation import MARGIN_S_MIN
from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_disk import LATENCY_S

Fault = Callable[[], Awaitable[None]]

# (shortest, longest) duration of a fault. LONG is beyond heartbeat, session and restart delays taken together, LONGEST beyond
# the short lease and its margin.
SHORT_S = (0.05, 3.0)
LONG_S = (20.0, 90.0)
LONGEST_S = (90.0, 180.0)
# No shim acts while its machine's user space stands still, and the kernel goes on answering for its addresses. The margin
# after which a manager gives a lapsed lease up bounds what can be promised: longer pauses of agents break it.
AGENT_PAUSE_S = (10.0, MARGIN_S_MIN - 5.0)


async def _at_once() -> None:
    """What nobody waits for."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a seed has drawn: kinds of fault, each with the mean time between two of them in seconds."""

    mean_between_s: dict[str, float]
    skews_s: dict[str, float]
    loss: float
    delay_s: tuple[float, float]

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} every {every_s:.0f} s" for kind, every_s in self.mean_between_s.items())
        return f"faults: {faults or 'none'}; loss {self.loss:.3f}, delay up to {self.delay_s[1] * 1000:.1f} ms"


class Nemesis:
    """Breaks a world until it is told to stop, then heals everything.

    Args:
        world: what to break.
        managers: names of the daemons that are managers; each on the machine of the same name.
        agents: those that are agents, likewise.
        neighbours: daemons on the managers' machines that are no managers.
        others: further kinds of fault, each of which heals itself; who passes them heals what is left of them.
        rng: where everything is drawn from.
    """

    def __init__(
        self,
        world: SimWorld,
        *,
        managers: Sequence[str],
        agents: Sequence[str],
        neighbours: Sequence[str] = (),
        others: Mapping[str, Fault] = {},
        rng: random.Random | None = None,
    ) -> None:
        self.world = world
        self.n_faults: dict[str, int] = {}
        # Returns when a user has been answered: the meanest moment for a power cut.
        self.next_answer: Callable[[], Awaitable[None]] = _at_once
        self._managers = tuple(managers)
        self._agents = tuple(agents)
        self._neighbours = tuple(neighbours)
        self._rng = rng or world.generator("nemesis")
        self._faults: dict[str, Fault] = {
            "crash agent": lambda: self._crash(self._agents),
            "crash manager": lambda: self._crash(self._managers),
            "power cut agent": lambda: self._power_cut(self._agents),
            "power cut manager": lambda: self._power_cut(self._managers),
            "power cut after answer": self._power_cut_after_answer,
            "crash neighbour": self._crash_neighbour,
            "isolate agent": self._isolate_agent,
            "split": self._split,
            "one-way": self._one_way,
            "isolate manager": self._isolate_manager,
            "pause manager": lambda: self._pause(self._managers, LONG_S),
            "pause agent": lambda: self._pause(self._agents, AGENT_PAUSE_S),
            "cut": self._cut,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "slow line": self._slow_line,
            **others,
        }
        self.plan = self._draw_plan()
        self._busy: dict[str, None] = {}  # machines that a fault has in its hands

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind of fault there is."""
        return tuple(self._faults)

    async def run(self) -> None:
        """Break things until cancelled; what is broken then stays so until `heal`."""
        self.world.trace.event("nemesis", str(self.plan))
        async with trio.open_nursery() as nursery:
            for kind, every_s in self.plan.mean_between_s.items():
                nursery.start_soon(self._repeat, kind, every_s)

    def heal(self) -> None:
        """Everything works again: all ways free, all machines on, nothing paused, slow or full."""
        self.world.network.loss = 0.0
        self.world.network.extra_delay_s.clear()
        self.world.heal()
        self._busy.clear()
        for name in (*self._managers, *self._agents):
            self.world.resume(name)
            self._mend_disk(name)
            self.world.power_on(name)
            self.world.restart(name)
        for name in self._neighbours:
            self.world.restart(name)

    def _draw_plan(self) -> Plan:
        rng = self._rng
        existing = [kind for kind in self._faults if rng.random() < 0.4]
        return Plan(
            mean_between_s={kind: rng.choice((15.0, 40.0, 120.0)) for kind in existing},
            skews_s={name: rng.uniform(-30, 30) for name in self._agents if rng.random() < 0.2},
            loss=rng.choice((0.0, 0.0, 0.001, 0.02)),
            delay_s=(0.0002, rng.choice((0.002, 0.002, 0.02, 0.2))),
        )

    def prepare(self) -> None:
        """Set what holds for the whole run: clocks and the lines. Call before the daemons start."""
        self.world.network.loss = self.plan.loss
        self.world.network.delay_s = self.plan.delay_s
        for name, skew_s in self.plan.skews_s.items():
            self.world.machine(name).set_clock(skew_s=skew_s)

    async def _repeat(self, kind: str, mean_s: float) -> None:
        while True:
            await trio.sleep(self._rng.expovariate(1.0 / mean_s))
            self.n_faults[kind] = self.n_faults.get(kind, 0) + 1
            await self._faults[kind]()

    async def _while_broken(self, names: Sequence[str] = ()) -> None:
        """A while; not the longest when a manager is among the names: nothing happens without it."""
        longest_s = LONG_S if any(name in self._managers for name in names) else LONGEST_S
        await trio.sleep(self._rng.uniform(*self._rng.choice((SHORT_S, SHORT_S, LONG_S, longest_s))))

    def _take(self, names: Sequence[str]) -> str:
        """A machine that no other fault has in its hands; "" when all are taken."""
        free = [name for name in names if name not in self._busy]
        if not free:
            return ""
        name = self._rng.choice(free)
        self._busy[name] = None
        return name

    def _give_back(self, name: str) -> bool:
        """Whether the fault still has the machine: `heal` takes all of them away."""
        return self._busy.pop(name, True) is None

    async def _crash(self, names: Sequence[str]) -> None:
        if name := self._take(names):
            self.world.crash(name)
            await self._while_broken(names)
            if self._give_back(name):
                self.world.restart(name)

    async def _power_cut(self, names: Sequence[str]) -> None:
        if name := self._take(names):
            self.world.power_cut(name)
            await self._while_broken(names)
            if self._give_back(name):
                self.world.power_on(name)

    async def _power_cut_after_answer(self) -> None:
        await self.next_answer()
        await self._power_cut(self._managers)

    async def _crash_neighbour(self) -> None:
        """Only while its machine is well: a manager's other fault would start it again."""
        if self._neighbours and (manager := self._take(self._managers)):
            name = self._rng.choice(self._neighbours)
            self.world.crash(name)
            await self._while_broken()
            if self._give_back(manager):
                self.world.restart(name)

    async def _pause(self, names: Sequence[str], long_s: tuple[float, float]) -> None:
        if name := self._take(names):
            self.world.pause(name)
            await trio.sleep(self._rng.uniform(*self._rng.choice((SHORT_S, SHORT_S, long_s))))
            if self._give_back(name):
                self.world.resume(name)

    async def _isolate_agent(self) -> None:
        """Often for longer than the short lease and its margin, so that its tasks are given up."""
        await self._separated([self._rng.choice(self._agents)], durations=(SHORT_S, LONG_S, LONGEST_S, LONGEST_S))

    async def _isolate_manager(self) -> None:
        await self._separated([self._rng.choice(self._managers)])

    async def _split(self) -> None:
        n_agents = self._rng.randint(1, len(self._agents))
        await self._separated(self._rng.sample(self._agents, n_agents))

    async def _one_way(self) -> None:
        await self._separated([self._rng.choice((*self._managers, *self._agents))], one_way=True)

    async def _separated(
        self, group: list[str], *, one_way: bool = False, durations: Sequence[tuple[float, float]] = ()
    ) -> None:
        others = [name for name in self.world.machines if name not in group]
        inward = self._rng.random() < 0.5
        some, rest = (others, group) if inward else (group, others)
        self.world.partition(some, rest, one_way=one_way)
        if durations:
            await trio.sleep(self._rng.uniform(*self._rng.choice(durations)))
        else:
            await self._while_broken(group)
        self.world.trace.event("network", f"rejoin {','.join(group)}")
        self.world.network.unblock(some, rest)
        self.world.network.unblock(rest, some)

    async def _cut(self) -> None:
        self.world.cut(self._rng.choice(self._managers), self._rng.choice(self._agents))

    async def _slow_disk(self) -> None:
        name = self._rng.choice(self._rng.choice((self._managers, self._agents)))
        self.world.trace.event(name, "slow disk")
        self.world.machine(name).disk.latency_s = self._rng.uniform(0.05, 2.0)
        await self._while_broken([name])
        self._mend_disk(name)

    async def _full_disk(self) -> None:
        name = self._rng.choice(self._rng.choice((self._managers, self._agents)))
        self.world.trace.event(name, "full disk")
        self.world.machine(name).disk.full = True
        await self._while_broken([name])
        self._mend_disk(name)

    def _mend_disk(self, name: str) -> None:
        disk = self.world.machine(name).disk
        disk.full, disk.latency_s = False, LATENCY_S

    async def _slow_line(self) -> None:
        way = (self._rng.choice(self._managers), self._rng.choice(self._agents))
        way = way if self._rng.random() < 0.5 else (way[1], way[0])
        self.world.trace.event("network", f"slow line {way[0]} -> {way[1]}")
        self.world.network.extra_delay_s[way] = self._rng.uniform(0.05, 5.0)
        await self._while_broken()
        self.world.network.extra_delay_s.pop(way, None)
