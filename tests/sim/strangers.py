"""Machines on the LAN that nobody registered, and which questions about addresses they have answered.

What is promised: before a task's link has an address, its host asks the LAN, and an address for which a stranger answered
then does not come up. A stranger that arrives after the last question was asked is at fault itself: it was its turn to ask,
and a task that has the address would have answered. So what counts is the answer to the *last* question of that host before
the address came up; each address that comes up needs a question of its own. Addresses that nobody on the LAN asks for (ipvlan
in its routed modes) have no such promise.
"""

from __future__ import annotations

import functools
import ipaddress
import random

import trio

from beeyard.runtime.fake_neighbours import advertisement, arp_reply
from beeyard.runtime.sim import SimWorld
from tests.sim.lan import parts_of, task_addresses


class Strangers:
    """All of them. `watch` before the machines' daemons start."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._mac_of: dict[str, str] = {}
        self._answers: dict[tuple[str, str], str] = {}  # (machine, address) → who answered last; "" nobody
        self._n_arrived = 0
        self.n_answered = 0

    def watch(self) -> None:
        """Be on the LAN of every machine."""
        for name in self._world.machines:
            if (parts := parts_of(self._world.machines[name])) is not None:
                parts.kernel.neighbours.mac_of = functools.partial(self._asked, name)

    def _asked(self, machine: str, address: str) -> str | None:
        mac = self._mac_of.get(address, "")
        self._answers[machine, address] = mac
        self.n_answered += bool(mac)
        return mac or None

    def arrive(self, address: str) -> str:
        """One comes with an address and tells everybody; gives its MAC address."""
        self._n_arrived += 1
        mac = f"06:00:00:00:{self._n_arrived >> 8:02x}:{self._n_arrived & 255:02x}"
        self._mac_of[address] = mac
        self._world.trace.event("LAN", f"a stranger has {address}")
        packed = ipaddress.ip_address(address).packed
        frame = advertisement(packed, mac) if ":" in address else arp_reply(packed, mac, to=b"\xff" * 6, to_ip=packed)
        for machine in self._world.machines.values():
            if (parts := parts_of(machine)) is not None and machine.net.on:
                parts.kernel.neighbours.hear(frame)
        return mac

    def leave(self, address: str) -> None:
        """It goes. Idempotent: yes."""
        if self._mac_of.pop(address, None) is not None:
            self._world.trace.event("LAN", f"no stranger has {address} any more")

    def leave_all(self) -> None:
        """Nobody is left who does not belong here."""
        for address in list(self._mac_of):
            self.leave(address)

    def check_came_up(self, machine: str, address: str) -> None:
        """Call when an address has come up on a task's new link on a machine."""
        answer = self._answers.pop((machine, address), None)
        assert answer is not None, f"address {address} came up on {machine} before anybody was asked whether it is free"
        assert not answer, f"address {address} came up on {machine} although {answer} had answered that it has it"

    async def visit(self, rng: random.Random, candidates: list[str], stay_s: tuple[float, float]) -> None:
        """One comes for a while: mostly with a free address, as machines do that ask first."""
        rude = rng.random() < 0.2
        taken = {live.address for _, live in task_addresses(self._world)}
        free = [address for address in candidates if address not in self._mac_of and (rude or address not in taken)]
        if free:
            address = rng.choice(free)
            self.arrive(address)
            await trio.sleep(rng.uniform(*stay_s))
            self.leave(address)


__all__ = ["Strangers"]
