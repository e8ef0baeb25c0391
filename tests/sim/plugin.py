"""The IPAM plugin of a seed's cluster: where it runs, what goes wrong with it, and what its books must say at rest."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator

import trio

from beeyard.core.grant import AddressGrant
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimWorld
from tests.sim.history import History
from tests.support.sim_plugin import FAULTS, Seeded, SimPlugin

NAME = "p1"
MACHINE = "x1"  # of one that is remote
PORT = 9000
SHORT_S = (0.1, 5.0)
# Beyond the deadline of a question, and beyond that of one that was given up.
LONG_S = (15.0, 90.0)


def _refuses(method: str, body: dict[str, object]) -> str:
    """It says no to everything."""
    return "error"


class ClusterPlugin:
    """The plugin and its faults.

    Args:
        world: in which it runs.
        place: "local" on the manager's machine, or "remote" on one of its own.
        manager: the manager's machine.
    """

    def __init__(self, world: SimWorld, place: str, manager: str) -> None:
        self._world = world
        self._manager = manager
        self._is_remote = place == "remote"
        self._machine = MACHINE if self._is_remote else manager
        self._rng: random.Random = world.generator("plugin")
        self._script = Seeded(self._rng, 0.0, FAULTS)
        self._share = self._rng.choice((0.0, 0.05, 0.3))
        # One that keeps nothing says so, and is told everything again.
        forgets = self._rng.random() < 0.25
        capabilities = {"RequiresMACAddress": self._rng.random() < 0.3, "RequiresRequestReplay": forgets}
        self.plugin = SimPlugin(NAME, script=self._script, persistent=not forgets, capabilities=capabilities)
        if self._is_remote:
            self.plugin.address = f"tcp://0.0.0.0:{PORT}"
        self._broken = False
        world.machine(self._machine)

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What a nemesis may do to it, each for a while."""
        kinds = {"crash plugin": self._crash, "hang plugin": self._hang, "plugin refuses": self._refuse}
        return {**kinds, "power cut plugin": self._power_cut} if self._is_remote else dict(kinds)

    async def start(self) -> None:
        """Start it, where the manager finds it."""
        if self._is_remote:
            where = f"tcp://{MACHINE}:{PORT}".encode()
            await self._world.host(self._manager).files.replace(f"/etc/docker/plugins/{NAME}.spec", where)
        self._world.start(NAME, self._live, machine=self._machine)

    async def _live(self, host: Host) -> None:
        await self.plugin.run(host)

    def misbehave(self) -> None:
        """From now on a share of its answers is wrong, as the seed has drawn."""
        self._script.share = self._share

    def break_for_good(self) -> None:
        """Out of order until `heal`, in a way that the seed draws."""
        self.heal()
        self._broken = True
        kind = self._rng.choice(("hung", "gone", "refuses"))
        self._world.trace.event(NAME, f"stays {kind}")
        if kind == "hung":
            self.plugin.hang()
        elif kind == "gone":
            self._world.crash(NAME)
        else:
            self.plugin.script = _refuses

    def heal(self) -> None:
        """It works again, once its machine runs."""
        self._broken = False
        self._script.stop()
        self.plugin.script = self._script
        if self.plugin.hung is not None:
            self.plugin.resume()
        self._world.power_on(self._machine)
        self._world.restart(NAME)

    async def _crash(self) -> None:
        with self._turn() as mine:
            if mine:
                self._world.crash(NAME)
                await self._while_broken()
                if self._world.machines[self._machine].net.on:
                    self._world.restart(NAME)

    async def _power_cut(self) -> None:
        with self._turn() as mine:
            if mine:
                self._world.power_cut(self._machine)
                await self._while_broken()
                self._world.power_on(self._machine)

    async def _hang(self) -> None:
        with self._turn() as mine:
            if mine:
                self._world.trace.event(NAME, "hangs")
                self.plugin.hang()
                await self._while_broken()
                if self.plugin.hung is not None:
                    self.plugin.resume()

    async def _refuse(self) -> None:
        with self._turn() as mine:
            if mine:
                self._world.trace.event(NAME, "refuses")
                self.plugin.script = _refuses
                await self._while_broken()
                self.plugin.script = self._script

    @contextlib.contextmanager
    def _turn(self) -> Iterator[bool]:
        """Whether nothing else has broken it; then this fault has it."""
        mine = not self._broken
        self._broken = True
        try:
            yield mine
        finally:
            if mine:
                self._broken = False

    async def _while_broken(self) -> None:
        await trio.sleep(self._rng.uniform(*self._rng.choice((SHORT_S, LONG_S))))

    def check_books(self, history: History) -> None:
        """At rest its books and what the manager has stored agree to the address, and so do the tasks' grants.

        Where it gave an address to two, only the plugin knows which of them it meant, and what else it keeps for the one
        that it lied to. One that keeps nothing and that nobody has called yet is told everything before anything else.
        """
        if self.plugin.is_fresh and not self.plugin.persistent:
            return
        ours = {address.partition("/")[0]: lease.id for lease in history.leases.values() for address in lease.addresses}
        reserved = {a for pool in history.pool_leases.values() for part in pool.parts for a in part.taken}
        lied_to, twice = self.plugin.lied_to, self.plugin.given_twice
        books = self.plugin.books.addresses()
        theirs = {
            ip: who for ip, who in books.items() if ip not in reserved and not (who in lied_to and ip not in ours)
        }
        agree = theirs.keys() == ours.keys() and all(theirs[ip] == ours[ip] or ip in twice for ip in ours)
        assert agree, f"the plugin's books say {theirs}, and the manager's {ours}"
        granted = {
            address.partition("/")[0]: grant.id
            for task in history.tasks.values()
            if task.holds_room
            for grant in task.grants
            if isinstance(grant, AddressGrant) and grant.hook == "ipam"
            for address in grant.addresses
        }
        wrong = {ip: grant_id for ip, grant_id in granted.items() if ours.get(ip) != grant_id}
        assert wrong == {}, f"tasks have addresses of which the plugin knows nothing: {wrong}"

    def check_books_are_empty(self, history: History, *, pools: bool) -> None:
        """Everything was given back; `pools`: those too, for their networks are gone."""
        self.check_books(history)
        lied_to = self.plugin.lied_to
        everyone = self.plugin.books.addresses().values()
        held = [who for who in everyone if not who.startswith("com.docker.") and who not in lied_to]
        assert held == [], f"the plugin still keeps addresses for {held}"
        assert history.leases == {}, f"leases are left: {sorted(history.leases)}"
        # With an address that it keeps for one that it lied to, a plugin does not take the pool back either.
        if pools and not lied_to.intersection(everyone):
            assert self.plugin.books.pools == {}, f"the plugin still has pools {self.plugin.books.pools}"
            kept = {place: who for place, who in self.plugin.books.held.items() if who not in lied_to}
            assert kept == {}, f"the plugin still keeps {kept}"
            assert history.pool_leases == {}, f"pools are left: {sorted(history.pool_leases)}"


__all__ = ["NAME", "ClusterPlugin"]
