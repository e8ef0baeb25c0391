"""Whether this node has room for one more task, by its own count and not by the manager's belief.

Theory of operation
-------------------
A task *holds* CPU, memory, generic resources and addresses from its admission until its links are down and its end is
known. The manager counts in the same way, but its news travel: a successor may be assigned here while its predecessor is
still stopping. So a task *waits* while somebody who is already stopping will give up what it needs: its own slot's
predecessor, the holder of one of its addresses, ports or named resources, or enough room. When nobody who is stopping would
help, it is *refused* and goes elsewhere.

An *unknown* task is one that this host runs and nobody knows (its record was lost). Nobody can say which addresses, ports
and named resources it holds, so no task that needs one is admitted until all unknown ones are gone.

A waiting task holds nothing, hence two waiting tasks cannot block each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import trio

from beeyard.core.amounts import cpu_text, memory_text
from beeyard.core.errors import HostError
from beeyard.core.grant import AddressGrant, PortGrant, ResourceGrant
from beeyard.core.resources import GenericResource, Resources
from beeyard.core.wire import AssignedTask

# Stand for a segment where ports or resources are meant; no segment has such a name.
_PORTS = "\0ports"
_RESOURCES = "\0resources"
_CPU, _MEMORY = "\0cpu", "\0memory"  # beside the names of generic kinds
_NAMES = {_CPU: "CPU", _MEMORY: "memory"}
_WORDS = {_PORTS: "port", _RESOURCES: "resource"}


class AdmissionRefused(HostError):
    """This node has no room for the task and will not have it soon."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclasses.dataclass
class _Hold:
    task: AssignedTask
    stopping: bool = False


def address_keys(task: AssignedTask) -> Iterator[tuple[str, str]]:
    """(segment, address without prefix length) of each address that a task uses."""
    for grant in task.grants:
        if isinstance(grant, AddressGrant):
            for address in grant.addresses:
                yield grant.segment, address.partition("/")[0]


def port_keys(task: AssignedTask) -> Iterator[tuple[str, str]]:
    """The same for each port of this node that a task uses."""
    for grant in task.grants:
        if isinstance(grant, PortGrant):
            for port in grant.ports:
                yield _PORTS, f"{port.published}/{port.protocol}"


def resource_keys(task: AssignedTask) -> Iterator[tuple[str, str]]:
    """The same for each of this node's resources that a task has by name."""
    for grant in task.grants:
        if isinstance(grant, ResourceGrant):
            for claim in grant.resources:
                for name in claim.names:
                    yield _RESOURCES, f"{claim.kind}={name}"


def _keys(task: AssignedTask) -> list[tuple[str, str]]:
    """All that no two tasks may have."""
    return [*address_keys(task), *port_keys(task), *resource_keys(task)]


class Admission:
    """The room of one node and who holds it."""

    def __init__(
        self,
        resources: Callable[[], tuple[int, int]],
        generic: Sequence[GenericResource] = (),
        reserved: Resources | None = None,
    ) -> None:
        """Args: CPU and memory of the host, its generic resources, and what of the former it keeps for itself."""
        self._resources = resources
        self._generic = {resource.kind: resource.amount for resource in generic}
        self._named = {f"{resource.kind}={name}" for resource in generic for name in resource.names}
        self._reserved = reserved or Resources()
        self._holds: dict[str, _Hold] = {}
        self._n_unknown = 0
        self._changed = trio.Event()

    async def admit(self, task: AssignedTask, waiting: Callable[[str], None]) -> None:
        """Wait until the task fits, then hold what it needs. `waiting` is told why it waits, once per reason.

        Cancellation: all or nothing: when cancelled, nothing is held.

        Raises:
            AdmissionRefused: it does not fit, and nobody who is stopping would change that.
        """
        told = ""
        while reason := self._why_wait(task):
            if reason != told:
                waiting(reason)
                told = reason
            await self._changed.wait()
        self.hold(task)

    def hold(self, task: AssignedTask) -> None:
        """Count a task that is already here, whether it fits or not. Idempotent: yes."""
        self._holds.setdefault(task.id, _Hold(task))

    def stopping(self, task_id: str) -> None:
        """The task will give up what it holds. Idempotent: yes; fine for a task that holds nothing."""
        hold = self._holds.get(task_id)
        if hold is not None and not hold.stopping:
            hold.stopping = True
            self._wake()

    def release(self, task_id: str) -> None:
        """The task is over and its links are down. Idempotent: yes."""
        if self._holds.pop(task_id, None) is not None:
            self._wake()

    def unknown_found(self) -> None:
        """A task that nobody knows is on this host."""
        self._n_unknown += 1

    def unknown_gone(self) -> None:
        """One of them is gone, its links down."""
        self._n_unknown -= 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _why_wait(self, task: AssignedTask) -> str:
        """ "" when the task fits now, else whom it waits for."""
        for _, device in resource_keys(task):
            if device not in self._named:
                # The manager may have gone by what this node said before its operator changed it.
                raise AdmissionRefused(f"resource {device} is not one of this node's")
        wanted = set(_keys(task))
        if wanted and self._n_unknown:
            return f"waiting for {self._n_unknown} unknown tasks to be cleaned up"
        for hold in self._holds.values():
            if hold.task.id == task.id:
                continue
            sharing = [key for key in _keys(hold.task) if key in wanted]
            if sharing and not hold.stopping:
                what = f"{_WORDS.get(sharing[0][0], 'address')} {sharing[0][1]}"
                raise AdmissionRefused(f"{what} is in use on this node by task {hold.task.id}")
            same_slot = hold.task.service_id == task.service_id and hold.task.slot == task.slot
            if sharing or (same_slot and hold.stopping):
                return f"waiting for task {hold.task.id} to stop"
        return self._why_no_room(task)

    def _why_no_room(self, task: AssignedTask) -> str:
        for kind, asked in _amounts(task).items():
            if not asked:
                continue
            name = _NAMES.get(kind, kind)
            total = self._total(kind)
            free = total - sum(_amounts(hold.task).get(kind, 0) for hold in self._holds.values())
            if asked <= free:
                continue
            returning = sum(_amounts(hold.task).get(kind, 0) for hold in self._holds.values() if hold.stopping)
            if asked <= free + returning:
                return f"waiting for {name} that stopping tasks still hold"
            raise AdmissionRefused(
                f"insufficient {name} on this node: {_text(kind, asked, up=True)} asked, "
                f"{_text(kind, max(free, 0))} of {_text(kind, total)} free"
            )
        return ""

    def _total(self, kind: str) -> int:
        """What this node has for tasks."""
        cpu_nano, memory_bytes = self._resources()
        if kind == _CPU:
            return cpu_nano - self._reserved.cpu_nano
        return memory_bytes - self._reserved.memory_bytes if kind == _MEMORY else self._generic.get(kind, 0)


def _text(kind: str, amount: int, *, up: bool = False) -> str:
    if kind == _MEMORY:
        return memory_text(amount, up=up)
    return cpu_text(amount) if kind == _CPU else str(amount)


def _amounts(task: AssignedTask) -> dict[str, int]:
    """What a task takes of each kind."""
    reservations = task.spec.reservations
    amounts = {_CPU: reservations.cpu_nano, _MEMORY: reservations.memory_bytes}
    amounts.update(reservations.generic_amounts)
    return amounts


__all__ = ["Admission", "AdmissionRefused", "address_keys"]
