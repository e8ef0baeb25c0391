"""What belongs to the slots of services: pinned addresses, and MAC addresses; and who still has them.

A pinned address is kept in the book from when its service is stored until it is removed. A task whose slot's addresses, or
whose slot's MAC address, another task still holds must wait: its predecessor may be on the LAN as long as its end was not
observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import trio

from beeyard.core.address_pool import AddressBook
from beeyard.core.mac_address import mac_address_of
from beeyard.core.model import Service, Task
from beeyard.core.network_options import PASSTHRU
from beeyard.core.pins import pins_of
from beeyard.core.pools import ResolvedPool


def has_own_mac(pool: ResolvedPool) -> bool:
    """Whether a task's link has a MAC address of its own: with ipvlan and in mode passthru it is the parent's."""
    return pool.driver == "macvlan" and pool.mode != PASSTHRU


def slot_mac(task: Task, network_id: str) -> str:
    """The MAC address of a task's slot on a network; "" when the slot has none. The same on every node, for every task."""
    return mac_address_of(f"slot {task.service_id} {network_id} {task.slot}") if task.mac_per_slot else ""


class SlotClaims:
    """Part of `AddressLedger`: `pools_of` gives the pools of a network by its id."""

    def __init__(self, book: AddressBook, pools_of: Callable[[str], Sequence[ResolvedPool]]) -> None:
        self._book = book
        self._pools_of = pools_of
        self._services: dict[str, Service] = {}  # with pinned addresses
        self._task_of: dict[str, str] = {}  # by grant
        self._grant_of_mac: dict[str, str] = {}
        self._mac_of_grant: dict[str, str] = {}

    def set_service(self, service_id: str, service: Service | None) -> bool:
        """A service came, changed or went; whether it pins addresses, or did."""
        if service is not None and len(pins_of(service.spec.labels)):
            self._services[service_id] = service
        elif self._services.pop(service_id, None) is None:
            return False
        self._book.set_pins(service_id, self._kept(service_id))
        return True

    def networks_changed(self) -> None:
        """Pools of another segment may serve a service now."""
        for service_id in self._services:
            self._book.set_pins(service_id, self._kept(service_id))

    def _kept(self, service_id: str) -> Iterator[tuple[str, str]]:
        service = self._services.get(service_id)
        if service is None:
            return
        network_ids = service.spec.task.network_ids
        segments = {pool.segment: None for network_id in network_ids for pool in self._pools_of(network_id)}
        for segment in segments:
            for address in pins_of(service.spec.labels).all():
                yield segment, address

    def own(self, task: Task, grant_id: str, network_id: str) -> None:
        """A task has this grant now, with its slot's MAC address if it has one."""
        self._task_of[grant_id] = task.id
        if mac := slot_mac(task, network_id):
            self._grant_of_mac[mac] = grant_id
            self._mac_of_grant[grant_id] = mac

    def give_up(self, grant_id: str) -> None:
        """A grant is over. Idempotent."""
        self._task_of.pop(grant_id, None)
        mac = self._mac_of_grant.pop(grant_id, "")
        if mac and self._grant_of_mac.get(mac) == grant_id:
            del self._grant_of_mac[mac]

    def conflict(self, task: Task) -> tuple[str, str]:
        """What a waiting task's slot cannot have yet, and the task that has it: ("", "") when nothing is in its way.

        The first is an address, perhaps with its use when no task of ours has it: "10.1.0.10, which a node has itself".
        """
        for network_id in task.spec.network_ids:
            pools = self._pools_of(network_id)
            mac = slot_mac(task, network_id) if any(map(has_own_mac, pools)) else ""
            if mac in self._grant_of_mac:
                return f"MAC address {mac}", self._task_of.get(self._grant_of_mac[mac], "")
            found = [self._pin_conflict(task, pool) for pool in pools if task.pins and pool.ipam]
            if found and all(what for what, _ in found):
                return found[0]
        return "", ""

    def _pin_conflict(self, task: Task, pool: ResolvedPool) -> tuple[str, str]:
        for address in task.pins:
            holder = self._book.holder(pool.segment, address)
            if holder:
                return f"address {address}", self._task_of.get(holder, "")
            if use := self._book.use_of(pool.segment, address, trio.current_time(), by_name=owner_of_pins(task)):
                return f"address {address}, which {use}", ""
        return "", ""


def owner_of_pins(task: Task) -> str:
    """Who has a task's addresses by name: its service, whose slots may exchange them; "" when it has none."""
    return task.service_id if task.pins else ""


__all__ = ["SlotClaims", "has_own_mac", "owner_of_pins", "slot_mac"]
