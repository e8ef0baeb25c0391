"""Defects on purpose in what is allocated after the node is known: see `tests/sim/mutants.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import trio

from beeyard.agent import probe as probe_step
from beeyard.agent.node_hooks import NodeHookStep
from beeyard.agent.ports import PortStep
from beeyard.agent.probe import ProbeStep
from beeyard.agent.use_count import UseCount
from beeyard.core.address_pool import AddressBook
from beeyard.core.host_ports import PortTable
from beeyard.core.model import HostPort, Task
from beeyard.core.wire import AssignedTask
from beeyard.manager.hooks import address as address_hook
from beeyard.manager.hooks import slot_claims
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.ipam import hook as ipam_hook
from beeyard.manager.ipam.ask import Ask, Asker
from beeyard.manager.ipam.give_back import GiveBack
from beeyard.manager.ipam.plugin import Plugin
from beeyard.manager.store import Store
from beeyard.netdrivers import routes as kernel_routes
from beeyard.runtime.host import NO_ADDITIONS, Additions


def nobody_asks_the_lan() -> AbstractContextManager[Any]:
    """Addresses are used without a question."""

    async def before(self: ProbeStep, task: AssignedTask) -> Additions:
        await trio.lowlevel.checkpoint()
        return NO_ADDITIONS

    return patch.object(ProbeStep, "before", before)


def answers_of_the_lan_are_ignored() -> AbstractContextManager[Any]:
    """It is asked, and the address is used all the same."""
    right = probe_step.probe.conflicts

    async def conflicts(*arguments: Any) -> list[Any]:
        await right(*arguments)
        return []

    return patch.object(probe_step.probe, "conflicts", conflicts)


def addresses_of_strangers_are_not_put_aside() -> AbstractContextManager[Any]:
    """The next task may get them."""
    return patch.object(AddressLedger, "set_aside", lambda self, task, *, stored=False: None)


def a_new_manager_forgets_what_was_put_aside() -> AbstractContextManager[Any]:
    """It learns nothing from stored tasks."""
    right = AddressLedger.set_aside

    def set_aside(self: AddressLedger, task: Task, *, stored: bool = False) -> None:
        if not stored:
            right(self, task)

    return patch.object(AddressLedger, "set_aside", set_aside)


def a_removed_pool_gives_up_its_addresses() -> AbstractContextManager[Any]:
    """Although tasks have them."""
    right = AddressBook.remove_pool

    def remove_pool(self: AddressBook, pool_id: str) -> None:
        for grant_id in list(self._grants):
            if self._grants[grant_id].pool_id == pool_id:
                self.release(grant_id, -1e9)
        right(self, pool_id)

    return patch.object(AddressBook, "remove_pool", remove_pool)


def pinned_addresses_are_not_kept() -> AbstractContextManager[Any]:
    """Tasks of other services get them from their pools."""
    return patch.object(AddressBook, "set_pins", lambda self, owner, pins: None)


def a_slot_has_another_mac_address_each_time() -> AbstractContextManager[Any]:
    """That of the task."""
    right = slot_claims.slot_mac

    def slot_mac(task: Task, network_id: str) -> str:
        return right(task, f"{network_id} {task.id}")

    return together(*(patch.object(module, "slot_mac", slot_mac) for module in (slot_claims, address_hook, ipam_hook)))


def a_plugin_gets_nothing_back() -> AbstractContextManager[Any]:
    """Of what tasks had."""
    right = Asker.release

    def release(self: Asker, lease_id: str, *, used: bool, rest_s: float) -> None:
        if used:
            self._ledger.release(lease_id, used=used)
        else:
            right(self, lease_id, used=used, rest_s=rest_s)

    return patch.object(Asker, "release", release)


def a_lost_answer_of_a_plugin_is_forgotten() -> AbstractContextManager[Any]:
    """As if it had given nothing."""

    async def end(self: Asker, ask: Ask, answers: list[str], fault: Any) -> None:
        await self._leases.forget(ask.lease)

    return patch.object(Asker, "_end", end)


def a_release_is_not_repeated() -> AbstractContextManager[Any]:
    """The plugin is told once, and believed to have heard it."""
    right = Plugin.release_address

    async def release_address(self: Plugin, pool_id: str, address: str) -> None:
        try:
            await right(self, pool_id, address)
        except Exception:
            return

    return patch.object(Plugin, "release_address", release_address)


def a_lease_is_not_stored_before_it_is_asked_for() -> AbstractContextManager[Any]:
    """So a manager that dies in between knows nothing of it."""
    right = Asker._ask

    async def ask(self: Asker, ask: Ask, pool: Any) -> Any:
        await self._leases.forget(ask.lease)
        return await right(self, ask, pool)

    return patch.object(Asker, "_ask", ask)


def everything_waits_for_a_plugin() -> AbstractContextManager[Any]:
    """Nothing is stored while one is asked."""
    right_call, right_commit = Plugin._call, Store._commit_group
    asked: list[int] = [0]

    async def call(self: Plugin, *arguments: Any, **more: Any) -> Any:
        asked[0] += 1
        try:
            return await right_call(self, *arguments, **more)
        finally:
            asked[0] -= 1

    async def commit_group(self: Store) -> None:
        while asked[0]:  # noqa: ASYNC110
            await trio.sleep(0.1)
        await right_commit(self)

    return together(patch.object(Plugin, "_call", call), patch.object(Store, "_commit_group", commit_group))


def fixed_ports_are_not_counted() -> AbstractContextManager[Any]:
    """Any number of tasks of one node may have the same."""

    def nodes(self: PortTable, port: HostPort) -> Any:
        return iter(())

    return patch.object(PortTable, "nodes", nodes)


def published_ports_stay() -> AbstractContextManager[Any]:
    """The end of a task takes nothing out of the firewall."""

    async def ended(self: PortStep, task_id: str) -> None:
        self._held.pop(task_id, None)
        await trio.lowlevel.checkpoint()

    return patch.object(PortStep, "ended", ended)


def hooks_are_not_told_of_ends() -> AbstractContextManager[Any]:
    """Of tasks that end while the agent runs."""

    async def ended(self: NodeHookStep, task_id: str) -> None:
        self._owed.pop(task_id, None)
        await trio.lowlevel.checkpoint()

    return patch.object(NodeHookStep, "ended", ended)


def what_is_owed_to_hooks_is_not_on_disk() -> AbstractContextManager[Any]:
    """So an agent that comes back owes nothing."""

    async def load(self: NodeHookStep) -> None:
        self._is_loaded = True
        await trio.lowlevel.checkpoint()

    return patch.object(NodeHookStep, "_load", load)


def hooks_add_nothing() -> AbstractContextManager[Any]:
    """What they answer is lost."""
    right = NodeHookStep.before

    async def before(self: NodeHookStep, task: AssignedTask) -> Additions:
        await right(self, task)
        return NO_ADDITIONS

    return patch.object(NodeHookStep, "before", before)


def routes_stay() -> AbstractContextManager[Any]:
    """Those to tasks that have ended."""

    async def take_away(*arguments: Any) -> None:
        await trio.lowlevel.checkpoint()

    return patch.object(kernel_routes, "take_away", take_away)


def links_of_hosts_stay() -> AbstractContextManager[Any]:
    """VLANs and host-side links, when their last task has ended."""

    async def leave(self: UseCount, task_id: str) -> None:
        self._needs.pop(task_id, None)
        await trio.lowlevel.checkpoint()

    return patch.object(UseCount, "leave", leave)


def a_restarted_manager_keeps_what_nobody_uses() -> AbstractContextManager[Any]:
    """Of leases that a crash has left, nothing goes back."""
    right = GiveBack.put

    def put(self: GiveBack, lease_id: str, due_s: float, *, sure: bool = False, repeated: bool = False) -> None:
        if not repeated:
            right(self, lease_id, due_s, sure=sure, repeated=repeated)

    return patch.object(GiveBack, "put", put)


@contextmanager
def together(*defects: AbstractContextManager[Any]) -> Iterator[None]:
    """Several defects at one time."""
    with ExitStack() as stack:
        for defect in defects:
            stack.enter_context(defect)
        yield


ALLOCATION_MUTANTS = (
    nobody_asks_the_lan,
    answers_of_the_lan_are_ignored,
    addresses_of_strangers_are_not_put_aside,
    a_new_manager_forgets_what_was_put_aside,
    a_removed_pool_gives_up_its_addresses,
    pinned_addresses_are_not_kept,
    a_slot_has_another_mac_address_each_time,
    a_plugin_gets_nothing_back,
    a_lost_answer_of_a_plugin_is_forgotten,
    a_release_is_not_repeated,
    a_lease_is_not_stored_before_it_is_asked_for,
    a_restarted_manager_keeps_what_nobody_uses,
    everything_waits_for_a_plugin,
    fixed_ports_are_not_counted,
    published_ports_stay,
    hooks_are_not_told_of_ends,
    what_is_owed_to_hooks_is_not_on_disk,
    hooks_add_nothing,
    routes_stay,
    links_of_hosts_stay,
)

__all__ = ["ALLOCATION_MUTANTS"]
