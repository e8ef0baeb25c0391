"""The book of addresses that a new manager builds from what is stored."""

from __future__ import annotations

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.model import Task
from beeyard.core.pools import DEFAULT_SEGMENT
from beeyard.core.states import TaskState
from beeyard.manager.hooks.address import address_hook
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.planner import Planner
from beeyard.manager.store import View
from beeyard.manager.store.view import Tables
from tests.support.builders import a_link, a_network, a_node, a_task
from tests.support.grants import a_grant

NOW_S = 1_700_000_000.0
ADDRESS = "10.77.0.1/24"


def a_stored_task(task_id: str, state: TaskState, *, age_s: float) -> Task:
    """One that has or had the address, last written so long ago."""
    grant = a_grant(
        ADDRESS, id=f"g-{task_id}", network_id="net1", pool_id="net1", pool_name="lan", segment=DEFAULT_SEGMENT
    )
    task = a_task(task_id, state=state, node_id="n1")
    return msgspec.structs.replace(task, grants=(grant,), updated_at_s=NOW_S - age_s)


def a_ledger(*tasks: Task) -> AddressLedger:
    """What a new manager makes of a store with one network and these tasks."""
    tables = Tables()
    tables.put(a_network())
    for task in tasks:
        tables.put(task)
    ledger = AddressLedger()
    planner = Planner(View(tables), ledger)
    planner.hooks = [address_hook(ledger, planner.index.pools_for, lambda: "g")]
    planner.load()
    return ledger


@pytest.mark.parametrize("age_s", [0.0, 20.0, COOL_DOWN_S, 86400.0, -5.0])
async def test_an_address_rests_in_full_after_a_restart(autojump_clock: MockClock, age_s: float) -> None:
    """However long ago its task seems to have ended: the wall clock may have jumped meanwhile."""
    ledger = a_ledger(a_stored_task("old", TaskState.FAILED, age_s=age_s))
    usage = ledger.usage("net1")
    assert usage is not None
    assert (usage.used, usage.cooling) == (0, 1)
    ready_s = ledger.next_ready_s()
    assert ready_s is not None
    assert abs(ready_s - trio.current_time() - COOL_DOWN_S) < 0.001


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
async def test_a_task_keeps_the_address_of_an_older_one_whose_record_was_written_again(
    autojump_clock: MockClock, order: tuple[str, str]
) -> None:
    """The older task's end seems young, since its service was removed a moment ago; that is nothing to worry about."""
    tasks = {
        "old": a_stored_task("old", TaskState.FAILED, age_s=1.0),
        "new": a_stored_task("new", TaskState.RUNNING, age_s=2.0),
    }
    with capture_logs() as logged:
        ledger = a_ledger(*(tasks[name] for name in order))
    assert ledger.grants() == ["g-new"]
    assert [line for line in logged if line["log_level"] in ("warning", "error")] == []
    ledger.release("g-old", used=True)
    assert ledger.grants() == ["g-new"]


async def test_a_node_that_takes_an_address_of_a_task_is_named_once(autojump_clock: MockClock) -> None:
    """Somebody must look after it: the address is on the LAN twice."""
    ledger = a_ledger(a_stored_task("t1", TaskState.RUNNING, age_s=0.0))
    with capture_logs() as logs:
        for _ in range(2):
            ledger.set_node(a_node("n2", links=[a_link("eth0", "10.77.0.2/24", ADDRESS)]))
    (entry,) = logs
    assert (entry["log_level"], entry["node"], entry["addresses"]) == ("warning", "n2", [ADDRESS])
