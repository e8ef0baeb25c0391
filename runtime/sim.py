"""A simulated world: machines, their network, disks and clocks, all in one process on trio's mock clock, from one seed.

Theory of operation
-------------------
A *machine* has a disk, a kernel with tasks (its `parts`), a clock and a place in the network. A *daemon* runs on a machine
and has one *life* after another; each life gets a fresh `SimHost`, on what the machine has kept.

* `crash` is a `kill -9`: the ports die first, then the daemon's scope is cancelled, so no clean-up of its own has any effect.
  What it had written is in the page cache and stays; its kernel closes its connections; its tasks run on.
* `power_cut` takes the whole machine: unsynced data is lost or torn, tasks and namespaces are gone, nobody is told.
* `pause` stops a machine's CPU: every port call waits, and so does `Host.running`. Its kernel still accepts connections.
* `partition` makes bytes stall, as TCP's do; `cut` breaks connections.

All randomness comes from generators that are seeded by the world's seed and their owner's name, and every draw and message
goes into `trace.digest`. Run under `tests/sim/determinism.py`, one seed gives one digest.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TextIO

import trio

from beeyard.core.errors import HostError
from beeyard.runtime.fake_firewall import FakeFirewall, GatedFirewall
from beeyard.runtime.host import Connection, Database, Executor, Host, ListServers, Netlink, NodeHooks
from beeyard.runtime.identifier import new_id
from beeyard.runtime.sim_disk import SimDatabase, SimDisk, SimFiles
from beeyard.runtime.sim_gate import GatedExecutor, GatedNetlink, MachineParts, NoParts
from beeyard.runtime.sim_hooks import GatedHooks, SimHooks
from beeyard.runtime.sim_life import Life, PauseSwitch
from beeyard.runtime.sim_lists import GatedListServers, NoListServers
from beeyard.runtime.sim_net import SimNet
from beeyard.runtime.sim_network import NetMachine, Network
from beeyard.runtime.sim_pki import SimPki
from beeyard.runtime.sim_trace import Trace, TracedRandom

Daemon = Callable[[Host], Awaitable[None]]

# 2023-11-14, any fixed moment will do.
EPOCH_S = 1_700_000_000.0
CPU_NANO = 4_000_000_000
MEMORY_BYTES = 8 << 30


class SimMachine:
    """One machine. Survives everything that happens to it."""

    def __init__(self, world: SimWorld, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.resources = (CPU_NANO, MEMORY_BYTES)
        self.switch = PauseSwitch()
        self.rng = world.generator(name)
        self.disk = SimDisk(world.generator(f"{name}/disk"))
        self.net = NetMachine(name, ip)
        self.hooks = SimHooks(self.switch.running)
        self.firewall = FakeFirewall()
        self.lists: ListServers = NoListServers()  # those that this machine can reach
        self.parts: MachineParts = NoParts()
        self._clock_offset_s = 0.0
        self._clock_rate = 1.0

    def wall_now_s(self) -> float:
        """What this machine takes for the time."""
        return EPOCH_S + self._clock_offset_s + trio.current_time() * self._clock_rate

    def set_clock(self, *, skew_s: float | None = None, drift: float | None = None) -> None:
        """Set the clock so far off the true time, or let it run faster by this share (1e-5 is usual), or both."""
        now, before = trio.current_time(), self.wall_now_s()
        if drift is not None:
            self._clock_rate = 1.0 + drift
        reads = before if skew_s is None else EPOCH_S + now + skew_s
        self._clock_offset_s = reads - EPOCH_S - now * self._clock_rate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SimHost:
    """`Host` of one life of a daemon."""

    hostname: str
    machine: SimMachine
    life: Life
    rng: random.Random
    net: SimNet
    pki: SimPki
    files: SimFiles
    netlink: Netlink
    executors: Sequence[Executor]
    node_hooks: NodeHooks
    firewall: GatedFirewall
    sockets: GatedFirewall
    lists: ListServers

    def wall_now_s(self) -> float:
        """See `Host.wall_now_s`."""
        return self.machine.wall_now_s()

    def new_id(self) -> str:
        """See `Host.new_id`."""
        return new_id(self.rng)

    async def running(self) -> None:
        """See `Host.running`. A daemon that has crashed is on its way out and is not held up."""
        await self.life.gate()

    async def open_database(self, path: str) -> Database:
        """See `Host.open_database`."""
        return await SimDatabase.open(self.machine.disk, self.life, path)

    def resources(self) -> tuple[int, int]:
        """See `Host.resources`."""
        return self.machine.resources

    def platform(self) -> tuple[str, str]:
        """See `Host.platform`."""
        return "x86_64", "linux"


@dataclasses.dataclass(eq=False)
class _Running:
    """A daemon and, while it lives, its life."""

    name: str
    machine: SimMachine
    daemon: Daemon
    rng: random.Random
    life: Life | None = None
    scope: trio.CancelScope | None = None


class SimWorld:
    """See the module. Use as `async with SimWorld(seed) as world`.

    Args:
        seed: of everything.
        parts: makes a machine's kernel and tasks; None: machines have none.
        revive_after_s: a daemon that ends by itself starts again so much later, as systemd does; None: it stays down.
        tolerated: errors by which a daemon may end; any other fails the world.
        sink: gets every line of the trace.
    """

    def __init__(
        self,
        seed: int,
        *,
        parts: Callable[[SimMachine], MachineParts] | None = None,
        revive_after_s: float | None = None,
        tolerated: tuple[type[BaseException], ...] = (HostError,),
        sink: TextIO | None = None,
    ) -> None:
        self.seed = seed
        self.trace = Trace(sink)
        self.network = Network(self.generator("network"), self.trace)
        self.machines: dict[str, SimMachine] = {}
        self.handler_errors: list[tuple[str, BaseException]] = []  # bugs that a listener's firebreak caught
        self.exits: list[tuple[float, str, str]] = []  # daemons that ended by themselves: when, who, why
        self._parts = parts
        self._revive_after_s = revive_after_s
        self._tolerated = tolerated
        self._daemons: dict[str, _Running] = {}
        self._nursery_manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        self._nursery = await self._nursery_manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._nursery is not None
        for running in self._daemons.values():
            if running.life is not None:
                running.life.end()
        self._nursery.cancel_scope.cancel()
        return await self._nursery_manager.__aexit__(kind, error, traceback)

    def generator(self, owner: str) -> random.Random:
        """A generator of this world's seed; each owner has its own stream."""
        return TracedRandom(self.seed, owner, self.trace)

    # --- machines

    def machine(
        self, name: str, *, resources: tuple[int, int] | None = None, skew_s: float = 0.0, drift: float = 0.0
    ) -> SimMachine:
        """A machine by name, made when it is new. The keyword arguments count for a new one only."""
        if name not in self.machines:
            number = len(self.machines) + 1
            machine = self.machines[name] = SimMachine(self, name, f"10.9.{number // 256}.{number % 256}")
            machine.resources = resources or machine.resources
            if skew_s or drift:
                machine.set_clock(skew_s=skew_s, drift=drift)
            self.network.add(machine.net)
            if self._parts is not None:
                machine.parts = self._parts(machine)
        return self.machines[name]

    def host(self, name: str) -> SimHost:
        """A fresh host on a machine, for code that is no daemon of this world. It lives as long as the world."""
        machine = self.machine(name)
        return self._host(Life(name, machine.switch), machine, machine.rng)

    def power_cut(self, machine_name: str) -> None:
        """A machine loses power, with every daemon on it. Idempotent: yes."""
        machine = self.machines[machine_name]
        if not machine.net.on:
            return
        self.trace.event(machine_name, "power cut")
        self.network.power_off(machine.net)
        for running in self._on(machine):
            self._end(running)
        machine.switch.resume()
        machine.disk.power_cut()
        machine.parts.power_cut()
        machine.firewall.power_cut()

    def power_on(self, machine_name: str) -> None:
        """A machine starts again, with every daemon that it had. Idempotent: yes."""
        machine = self.machines[machine_name]
        if not machine.net.on:
            self.trace.event(machine_name, "power on")
            self.network.power_on(machine.net)
        for running in self._on(machine):
            self._begin(running)

    def pause(self, machine_name: str) -> None:
        """Stop a machine's CPU. Idempotent: yes."""
        self.trace.event(machine_name, "pause")
        self.machines[machine_name].switch.pause()

    def resume(self, machine_name: str) -> None:
        """Let it run again. Idempotent: yes."""
        self.trace.event(machine_name, "resume")
        self.machines[machine_name].switch.resume()

    # --- daemons

    def start(self, name: str, daemon: Daemon, *, machine: str = "") -> None:
        """Start a daemon under a name of its own; `machine` "": the machine has the same name."""
        assert name not in self._daemons, f"{name} was started before; restart it"
        where = self.machine(machine or name)
        running = _Running(name=name, machine=where, daemon=daemon, rng=self.generator(f"{name}/daemon"))
        self._daemons[name] = running
        self._begin(running)

    def alive(self, name: str) -> bool:
        """Whether a daemon runs (or would, were its machine not paused)."""
        return self._daemons[name].life is not None

    def crash(self, name: str) -> None:
        """Kill a daemon: ports first, then its scope. Idempotent: yes."""
        running = self._daemons[name]
        if running.life is not None:
            self.trace.event(name, "crash")
            running.machine.disk.settle()
            self._end(running)

    def restart(self, name: str) -> None:
        """Start a daemon again, on what its machine has kept; switches the machine on if need be."""
        running = self._daemons[name]
        if not running.machine.net.on:
            self.power_on(running.machine.name)
        else:
            self._begin(running)

    # --- network

    def partition(self, some: Iterable[str], others: Iterable[str], *, one_way: bool = False) -> None:
        """Nothing gets from some machines to the others, nor back unless `one_way`."""
        some, others = list(some), list(others)
        self.trace.event("network", f"partition {','.join(some)} {'->' if one_way else '<->'} {','.join(others)}")
        self.network.block(some, others)
        if not one_way:
            self.network.block(others, some)

    def isolate(self, name: str) -> None:
        """Cut a machine off from all others."""
        self.partition([name], [other for other in self.machines if other != name])

    def heal(self) -> None:
        """Every way is free again."""
        self.trace.event("network", "heal")
        self.network.unblock_all()

    def cut(self, one: str, other: str) -> None:
        """Break every connection between two machines."""
        self.trace.event("network", f"cut {one} <-> {other}")
        self.network.cut(one, other)

    async def dial(self, machine_name: str, address: str, *, uid: int = 0, timeout_s: float = 10.0) -> Connection:
        """Connect as a client on a machine, for example to a unix socket there."""
        machine = self.machines[machine_name]
        net = SimNet(self.network, machine.net, None, machine.wall_now_s, uid=uid)
        return await net.dial(address, timeout_s=timeout_s)

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 60.0, every_s: float = 0.05) -> None:
        """Return once a condition holds; AssertionError with the last events when it does not within so long."""
        deadline = trio.current_time() + timeout_s
        while not condition():
            assert trio.current_time() < deadline, "\n".join([f"not within {timeout_s:g} s", *self.trace.last])
            await trio.sleep(every_s)

    # --- inside

    def _on(self, machine: SimMachine) -> list[_Running]:
        return [running for running in self._daemons.values() if running.machine is machine]

    def _host(self, life: Life, machine: SimMachine, rng: random.Random) -> SimHost:
        executors = machine.parts.executors(life)
        return SimHost(
            hostname=machine.name,
            machine=machine,
            life=life,
            rng=rng,
            net=SimNet(self.network, machine.net, life, machine.wall_now_s, errors=self._note_handler_error),
            pki=SimPki(rng),
            files=SimFiles(machine.disk, life),
            netlink=GatedNetlink(life, machine.parts.netlink()),
            executors=tuple(GatedExecutor(life, executor) for executor in executors),
            node_hooks=GatedHooks(life, machine.hooks),
            firewall=(firewall := GatedFirewall(life, machine.firewall, machine.firewall)),
            sockets=firewall,
            lists=GatedListServers(life, machine.lists),
        )

    def _note_handler_error(self, name: str, error: BaseException) -> None:
        self.trace.event(name, f"handler failed: {error!r}")
        self.handler_errors.append((name, error))

    def _begin(self, running: _Running) -> None:
        if running.life is None:
            self.trace.event(running.name, "start")
            running.life = Life(running.name, running.machine.switch)
            running.scope = trio.CancelScope()
            assert self._nursery is not None
            self._nursery.start_soon(self._live, running, running.life, running.scope, name=running.name)

    def _end(self, running: _Running) -> None:
        life, scope = running.life, running.scope
        running.life = running.scope = None
        if life is not None and scope is not None:
            life.end()
            self.network.process_gone(life)
            scope.cancel()

    async def _live(self, running: _Running, life: Life, scope: trio.CancelScope) -> None:
        """One life of a daemon."""
        reason = "it returned"
        try:
            with scope:
                await running.daemon(self._host(life, running.machine, running.rng))
        except* self._tolerated as group:
            reason = str(group.exceptions[0])
        except* Exception:
            # What the clean-up of a killed daemon runs into is not its fault.
            if life.alive:
                raise
        if life.alive:
            self.exits.append((trio.current_time(), running.name, reason))
            self.trace.event(running.name, f"ended: {reason}")
            self._end(running)
            if self._revive_after_s is not None:
                await trio.sleep(self._revive_after_s)
                if running.machine.net.on:
                    self._begin(running)


__all__ = ["CPU_NANO", "EPOCH_S", "MEMORY_BYTES", "Daemon", "SimHost", "SimMachine", "SimWorld"]
