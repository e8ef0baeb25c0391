"""The LAN as the machines' own kernels make it: which address answers where, and since when it rests."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import trio

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.runtime.fake_kernel import LiveAddress
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts

# What floating point leaves of a time after some additions to 1.7e9 s, with room to spare.
ROUNDING_S = 0.001


def parts_of(machine: SimMachine) -> FakeParts | None:
    """A machine's kernel and tasks, if it has any."""
    return machine.parts if isinstance(machine.parts, FakeParts) else None


def addresses_on(machine: SimMachine) -> Iterator[LiveAddress]:
    """Every address of a task that answers on the LAN from a machine. Link-local ones are each link's own."""
    parts = parts_of(machine)
    for live in parts.kernel.live_addresses() if parts is not None and machine.net.on else ():
        if live.netns and not live.address.startswith("fe80:"):
            yield live


def task_addresses(world: SimWorld) -> Iterator[tuple[str, LiveAddress]]:
    """Every address of a task that answers on the LAN now, with its machine."""
    for name, machine in world.machines.items():
        for live in addresses_on(machine):
            yield name, live


def task_of(machine: SimMachine, netns: str) -> str:
    """Id of the task whose namespace it is; "" for nobody's."""
    parts = parts_of(machine)
    tasks = parts.tasks.by_id.values() if parts is not None else ()
    return next((task.task.id for task in tasks if task.netns == netns), "")


@dataclasses.dataclass
class _Seen:
    """Who had an address last, and when that was seen."""

    machine: str
    netns: str
    task_id: str
    at_s: float


class Lan:
    """Follows every address of a task through the changes of all kernels.

    An address can only appear when some kernel is asked for it, so it is enough to look at that kernel then. That one has
    disappeared is noticed later, which makes its rest look shorter to nobody: it was seen at most when it was still there.
    """

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._seen: dict[str, _Seen] = {}

    def watch(self) -> None:
        """Look whenever a kernel changes, from now on."""
        for machine in self._world.machines.values():
            parts = parts_of(machine)
            if parts is not None:
                parts.on_change = functools.partial(self._look_at, machine)

    def look(self) -> None:
        """Look at all machines now."""
        check_no_address_twice(self._world)
        for machine in self._world.machines.values():
            self._look_at(machine)

    def _look_at(self, machine: SimMachine) -> None:
        now_s = trio.current_time()
        for live in addresses_on(machine):
            seen = self._seen.get(live.address)
            if seen is None or seen.machine != machine.name or seen.netns != live.netns:
                task_id = task_of(machine, live.netns)
                if seen is not None:
                    check_no_address_twice(self._world)
                    _check_rest(live.address, seen, machine.name, task_id)
                self._seen[live.address] = _Seen(machine.name, live.netns, task_id, now_s)
            else:
                seen.at_s = now_s


def _check_rest(address: str, seen: _Seen, machine: str, task_id: str) -> None:
    """Neighbours had time to forget who had the address before; a task may have it again at once."""
    rested_s = trio.current_time() - seen.at_s
    assert rested_s >= COOL_DOWN_S - ROUNDING_S or task_id == seen.task_id, (
        f"address {address} of task {seen.task_id} on {seen.machine} went to task {task_id} on {machine} "
        f"{rested_s:.3f} s after it was last seen"
    )


def check_no_address_twice(world: SimWorld) -> None:
    """No address answers from two links, whatever the manager believes."""
    seen: dict[str, tuple[str, LiveAddress]] = {}
    for name, live in task_addresses(world):
        if live.address in seen:
            other, earlier = seen[live.address]
            raise AssertionError(
                f"address {live.address} is on the LAN twice: {other}{earlier.netns} and {name}{live.netns}"
            )
        seen[live.address] = (name, live)


__all__ = ["Lan", "addresses_on", "check_no_address_twice", "parts_of", "task_addresses", "task_of"]
