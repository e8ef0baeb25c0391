"""What the printer of tasks keeps: as much as there are tasks, however many have come and gone."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any, cast

from beeyard.core.model import Task
from beeyard.core.states import TaskState
from beeyard.manager.api.tasks import TASKS_IN_A_ROW, TaskPrinter
from tests.support.builders import a_task


def test_tasks_that_are_gone_are_not_kept() -> None:
    """Twenty rounds of tasks that are shown and deleted: those of the last few rounds alone are still known."""
    tasks: dict[str, Task] = {}
    store = SimpleNamespace(tasks=tasks, networks={}, nodes={})
    status = SimpleNamespace(waiting_for=lambda task_id: "", held_back=lambda task: "")
    printer = TaskPrinter(cast("Any", SimpleNamespace(store=store, status=status)))
    seen: list[Task] = []
    for number in range(20):
        tasks.clear()
        tasks.update(
            (f"t{number}-{i}", a_task(f"t{number}-{i}", state=TaskState.RUNNING, node_id="n1")) for i in range(100)
        )
        for task in tasks.values():
            assert printer.show(task) == printer.show(task)
        seen += tasks.values()
    gc.collect()
    tasks.clear()
    # Two are `seen` itself and the call's argument.
    still_known = sum(sys.getrefcount(task) > 3 for task in seen)
    assert still_known <= 2 * 100 + TASKS_IN_A_ROW
