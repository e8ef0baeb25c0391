"""What was granted to tasks, checked at the moment at which it is durable: ports, pinned addresses, MAC addresses, strangers.

Addresses are in `tests/sim/history.py`; these are the promises that were made to slots, nodes and neighbours besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import HostPort, Service, Task
from beeyard.core.pins import Pins, pins_of
from beeyard.core.states import TaskState
from beeyard.runtime.sim import SimMachine
from tests.sim.lan import ROUNDING_S
from tests.sim.ports import check_nothing_forwarded, ports_of
from tests.sim.volumes import check_volumes_of

Key = tuple[str, str]  # (segment, address)


def devices_of(task: Task) -> list[str]:
    """The generic resources that a task has by name."""
    return [f"{claim.kind}={name}" for claim in task.claimed for name in claim.names]


class GrantRules:
    """Follows every task and service of one store.

    Args:
        machine_of: the machine of a node by the node's id, None when it is not known.
        put_aside_s: how long nobody is given an address that a stranger had.
    """

    def __init__(self, machine_of: Callable[[str], SimMachine | None], put_aside_s: float) -> None:
        self._machine_of = machine_of
        self._put_aside_s = put_aside_s
        self._ports: dict[tuple[str, HostPort], str] = {}  # (node, port) → task
        self._devices: dict[tuple[str, str], str] = {}  # (node, "kind=name") → task
        self._pins: dict[str, Pins] = {}  # by service
        self._macs: dict[tuple[str, str, int], str] = {}  # (service, network, slot)
        self._aside: dict[Key, tuple[float, str]] = {}  # until when, and by which task it is known

    def service_stored(self, service_id: str, service: Service | None) -> None:
        """A service came, changed or went (None)."""
        pins = pins_of(service.spec.labels) if service is not None else None
        if pins is not None and len(pins):
            self._pins[service_id] = pins
        else:
            self._pins.pop(service_id, None)

    def task_stored(self, before: Task | None, task: Task) -> None:
        """A task came or changed."""
        if task.status.state.is_terminal:
            if before is not None and not before.status.state.is_terminal:
                self._ended(task)
            return
        if task.grants and (before is None or not before.grants):
            self._granted(task)

    def task_deleted(self, task: Task) -> None:
        """A task went; nobody can know any more what it found on the LAN, once the manager was restarted."""
        self._give_up(task)
        self._aside = {key: known for key, known in self._aside.items() if known[1] != task.id}

    def _granted(self, task: Task) -> None:
        for port in ports_of(task.grants):
            other = self._ports.setdefault((task.node_id, port), task.id)
            assert other == task.id, f"port {port} of node {task.node_id} of task {other} went to task {task.id}"
        for device in devices_of(task):
            other = self._devices.setdefault((task.node_id, device), task.id)
            assert other == task.id, f"{device} of node {task.node_id} of task {other} went to task {task.id}"
        if task.node_id:
            asked, got = task.spec.reservations.generic_amounts, tuple((c.kind, c.amount) for c in task.claimed)
            assert asked == got, f"task {task.id} asked for {asked} and got {got}"
            check_volumes_of(task)
        for grant in task.grants:
            if isinstance(grant, AddressGrant):
                self._check_mac(task, grant)
                for address in grant.addresses:
                    self._check_address(task, grant, address.partition("/")[0])

    def _check_mac(self, task: Task, grant: AddressGrant) -> None:
        if task.mac_per_slot and grant.driver == "macvlan":
            mac = self._macs.setdefault((task.service_id, grant.network_id, task.slot), grant.mac)
            assert mac == grant.mac, f"slot {task.slot} of {task.service_name} had MAC {mac} and has {grant.mac}"

    def _check_address(self, task: Task, grant: AddressGrant, address: str) -> None:
        until_s, finder = self._aside.get((grant.segment, address), (-math.inf, ""))
        assert trio.current_time() >= until_s - ROUNDING_S, (
            f"address {address}, which task {finder} found to be a stranger's, went to task {task.id} "
            f"{until_s - trio.current_time():.3f} s too early"
        )
        for service_id, pins in self._pins.items():
            mine = task.service_id == service_id and address in task.pins
            assert mine or address not in pins.all(), (
                f"address {address} is pinned to a slot of service {service_id} and went to task {task.id}"
            )
        if task.pins:
            assert address in task.pins, f"task {task.id} is to have {task.pins} and got {address}"

    def _ended(self, task: Task) -> None:
        self._give_up(task)
        machine = self._machine_of(task.node_id)
        # Of an orphaned task nobody has seen the end; its ports are those of a machine that nobody reaches.
        if machine is not None and machine.net.on and task.status.state is not TaskState.ORPHANED:
            check_nothing_forwarded(machine, list(ports_of(task.grants)), task.id)
        segments = {
            address.partition("/")[0]: grant.segment
            for grant in task.grants
            if isinstance(grant, AddressGrant)
            for address in grant.addresses
        }
        for conflict in task.status.conflicts:
            key = segments[conflict.address], conflict.address
            self._aside[key] = (trio.current_time() + self._put_aside_s, task.id)

    def _give_up(self, task: Task) -> None:
        for device in devices_of(task):
            if self._devices.get((task.node_id, device)) == task.id:
                del self._devices[task.node_id, device]
        for port in ports_of(task.grants):
            if self._ports.get((task.node_id, port)) == task.id:
                del self._ports[task.node_id, port]


__all__ = ["GrantRules"]
