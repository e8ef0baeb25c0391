"""What comes to the machines and their LAN for a while and was there before nobody expected it, drawn from the seed."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

import trio

from beeyard.core.model import HostPort
from beeyard.runtime.sim import SimWorld
from tests.sim.layout import PINS, RACKS, Layout
from tests.sim.services import FIXED_PORT
from tests.sim.sizes import Sizes
from tests.sim.strangers import Strangers

STAY_S = ((0.05, 2.0), (10.0, 120.0))


class Visitors:
    """Strangers with addresses that tasks get, and programs that listen on ports that services publish."""

    def __init__(self, world: SimWorld, strangers: Strangers, networks: Layout, sizes: Sizes) -> None:
        self._world = world
        self._strangers = strangers
        self._rng = world.generator("visitors")
        self._addresses = list(_addresses(networks, sizes))

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What a nemesis may do, each for a while."""
        return {"stranger": self._stranger, "strangers": self._strangers_together, "listener": self._listener}

    def heal(self) -> None:
        """Everybody leaves."""
        self._strangers.leave_all()
        for machine in self._world.machines.values():
            machine.firewall.foreign.clear()

    async def _stranger(self) -> None:
        await self._strangers.visit(self._rng, self._addresses, self._rng.choice(STAY_S))

    async def _strangers_together(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self._rng.randint(4, 12)):
                nursery.start_soon(self._stranger)

    async def _listener(self) -> None:
        machine = self._world.machines[self._rng.choice(list(self._world.machines))]
        port = HostPort(protocol="tcp", port=FIXED_PORT + self._rng.randrange(40))
        self._world.trace.event(machine.name, f"nginx listens on {port}")
        machine.firewall.foreign[port] = "nginx (pid 812)"
        await trio.sleep(self._rng.uniform(*self._rng.choice(STAY_S)))
        machine.firewall.foreign.pop(port, None)


def _addresses(networks: Layout, sizes: Sizes) -> list[str]:
    """Addresses that tasks are likely to get: the first of each range."""
    n = sizes.n_addresses // 2
    firsts = [first for pair in (*RACKS.values(), PINS) for first in networks.families(pair)]
    firsts += ["10.78.0.2"] if networks.plugin else []
    firsts += ["10.79.0.1"] if networks.vlan_mode else []
    firsts += ["10.80.0.1"] if networks.second == "l2" else []
    firsts += ["10.81.0.1"] if networks.has_whole else []
    return [str(ipaddress.ip_address(first) + offset) for first in firsts for offset in range(n)]


__all__ = ["Visitors"]
