"""The LAN as the machines' own kernels make it: which address answers where, and since when it rests."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import trio

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.grant import AddressGrant
from beeyard.core.pins import pins_of
from beeyard.core.wire import AssignedTask
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
    task = assigned_task(machine, netns)
    return task.id if task is not None else ""


def assigned_task(machine: SimMachine, netns: str) -> AssignedTask | None:
    """The task whose namespace it is."""
    parts = parts_of(machine)
    tasks = parts.tasks.by_id.values() if parts is not None else ()
    return next((task.task for task in tasks if task.netns == netns), None)


def _nothing(machine: str, address: str) -> None:
    """Nobody wants to know."""


@dataclasses.dataclass
class _Seen:
    """Who had an address last, and when that was seen."""

    machine: str
    netns: str
    task_id: str
    at_s: float
    slot: tuple[str, int] | None  # (service, slot) to which the address is pinned


class Lan:
    """Follows every address of a task through the changes of all kernels.

    An address can only appear when some kernel is asked for it, so it is enough to look at that kernel then. That one has
    disappeared is noticed later, which makes its rest look shorter to nobody: it was seen at most when it was still there.

    Args:
        world: whose machines are followed.
        came_up: called with (machine, address) when an address that the LAN is asked for has come up on a new link.
    """

    def __init__(self, world: SimWorld, came_up: Callable[[str, str], None] = _nothing) -> None:
        self._world = world
        self._came_up = came_up
        self._seen: dict[str, _Seen] = {}
        # A daemon whose request has led to one may take the error for its own.
        self._violation: AssertionError | None = None

    def watch(self) -> None:
        """Look whenever a kernel changes, from now on."""
        for machine in self._world.machines.values():
            parts = parts_of(machine)
            if parts is not None:
                parts.on_change = functools.partial(self._look_at, machine)

    def look(self) -> None:
        """Look at all machines now; raises also what was found before."""
        if self._violation is not None:
            raise self._violation
        check_no_address_twice(self._world)
        for machine in self._world.machines.values():
            self._look_at(machine)

    def _look_at(self, machine: SimMachine) -> None:
        try:
            self._follow(machine)
        except AssertionError as violation:
            self._violation = self._violation or violation
            raise

    def _follow(self, machine: SimMachine) -> None:
        now_s = trio.current_time()
        for live in addresses_on(machine):
            seen = self._seen.get(live.address)
            if seen is None or seen.machine != machine.name or seen.netns != live.netns:
                task = assigned_task(machine, live.netns)
                task_id = task.id if task is not None else ""
                if seen is not None:
                    check_no_address_twice(self._world)
                    # By the slot and not by its pins: a task that is dispatched after its service was removed has no labels.
                    if task is None or seen.slot != (task.service_id, task.slot):
                        _check_rest(live.address, seen, machine.name, task_id)
                if task is not None:
                    check_is_granted(task, live)
                if live.arp:
                    self._came_up(machine.name, live.address)
                self._seen[live.address] = _Seen(
                    machine.name, live.netns, task_id, now_s, pinned_to(task, live.address)
                )
            else:
                seen.at_s = now_s


def _check_rest(address: str, seen: _Seen, machine: str, task_id: str) -> None:
    """Neighbours had time to forget who had the address before; a task may have it again at once."""
    rested_s = trio.current_time() - seen.at_s
    assert rested_s >= COOL_DOWN_S - ROUNDING_S or task_id == seen.task_id, (
        f"address {address} of task {seen.task_id} on {seen.machine} went to task {task_id} on {machine} "
        f"{rested_s:.3f} s after it was last seen"
    )


def pinned_to(task: AssignedTask | None, address: str) -> tuple[str, int] | None:
    """The slot to which an address is pinned by the labels of a task's service: it need not rest between them."""
    if task is None or address not in pins_of(task.service_labels).of_slot(task.slot):
        return None
    return task.service_id, task.slot


def check_is_granted(task: AssignedTask, live: LiveAddress) -> None:
    """A task's link has the addresses that it was granted, and the MAC address that goes with them."""
    grants = [
        grant
        for grant in task.grants
        if isinstance(grant, AddressGrant) and live.address in [a.partition("/")[0] for a in grant.addresses]
    ]
    assert grants, f"task {task.id} has {live.address}, which it was not granted"
    macs = [grant.mac for grant in grants if grant.driver == "macvlan"]
    assert live.mac in macs or not any(macs), f"task {task.id} has {live.address} at {live.mac}, granted with {macs}"


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


__all__ = [
    "Lan",
    "addresses_on",
    "assigned_task",
    "check_is_granted",
    "check_no_address_twice",
    "parts_of",
    "task_addresses",
    "task_of",
]
