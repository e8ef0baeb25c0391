"""How tasks are written, many at a time: `Transaction.change`, and the index by node while writes are under way."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.errors import DiskError
from beeyard.core.model import Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.manager.store import Transaction
from tests.support.builders import a_task
from tests.support.memory_database import MemoryDatabase
from tests.support.running_store import running_store

PENDING, ASSIGNED = TaskStatus(state=TaskState.PENDING), TaskStatus(state=TaskState.ASSIGNED)


def place(tx: Transaction, task_id: str, node_id: str) -> Task:
    return tx.change(tx.tasks[task_id], node_id=node_id, status=ASSIGNED)


def on_node(tx: Transaction, node_id: str) -> list[str]:
    return [task.id for task in tx.tasks_of_node(node_id)]


async def test_change_is_update_with_one_copy_less() -> None:
    """Both store the same task, with the same versions and times, and tell the same."""
    kept = []
    for in_one in (True, False):
        async with running_store() as (store, database):
            await store.commit(lambda tx: tx.create(a_task("a")))

            def write(tx: Transaction, in_one: bool = in_one) -> Task:
                if in_one:
                    return place(tx, "a", "n1")
                return tx.update(msgspec.structs.replace(tx.tasks["a"], node_id="n1", status=ASSIGNED))

            stored = await store.commit(write)
            assert store.tasks["a"] is stored
            kept.append((stored, database.log, [t.id for t in store.tasks_of_node("n1")], await store.history(0)))
    assert kept[0] == kept[1]


async def test_change_of_nothing_writes_nothing() -> None:
    """Fields that are as they were keep the version and do not touch the disk."""
    async with running_store() as (store, database):
        stored = await store.commit(lambda tx: tx.create(a_task("a")))
        same = TaskStatus(state=TaskState.PENDING)
        assert await store.commit(lambda tx: tx.change(tx.tasks["a"], status=same, node_id="")) is stored
        assert database.n_commits == 1


async def test_change_keeps_to_the_rules_of_tasks() -> None:
    """States only grow, a task never moves, and what was read before another write is not written over it."""
    async with running_store() as (store, _):
        first = await store.commit(lambda tx: tx.create(a_task("a")))
        await store.commit(lambda tx: place(tx, "a", "n1"))
        for refused, change in (
            ("ASSIGNED may not become PENDING", lambda tx: tx.change(tx.tasks["a"], status=PENDING)),
            ("is on n1 and never moves", lambda tx: tx.change(tx.tasks["a"], node_id="n2")),
            ("is not what it was", lambda tx: tx.change(first, status=ASSIGNED)),
        ):
            with pytest.raises(AssertionError, match=refused):
                await store.commit(change)
        assert store.tasks["a"].node_id == "n1"


async def test_tasks_of_a_node_are_seen_in_a_transaction() -> None:
    """Those of earlier groups, of this transaction and without what it deleted; after a failure only what is stored."""
    database = MemoryDatabase()
    async with running_store(database) as (store, _):
        for task_id in "abcd":
            await store.commit(lambda tx, task_id=task_id: tx.create(a_task(task_id)))
        await store.commit(lambda tx: [place(tx, task_id, "n1") for task_id in "ba"])

        def more(tx: Transaction) -> list[str]:
            place(tx, "c", "n1")
            place(tx, "d", "n2")
            tx.delete(Task, "b")
            return on_node(tx, "n1")

        def more_and_raise(tx: Transaction) -> None:
            assert more(tx) == ["a", "c"]
            raise KeyError("no")

        with pytest.raises(KeyError):
            await store.commit(more_and_raise)
        assert await store.commit(lambda tx: (on_node(tx, "n1"), on_node(tx, "n2"))) == (["b", "a"], [])
        database.fail_when = lambda n: True
        with pytest.raises(DiskError):
            await store.commit(more)
        assert await store.commit(lambda tx: (on_node(tx, "n1"), on_node(tx, "n2"))) == (["b", "a"], [])
        database.fail_when = lambda n: False
        assert await store.commit(more) == ["a", "c"]
        assert [t.id for t in store.tasks_of_node("n1")] == ["a", "c"]
        assert [t.id for t in store.tasks_of_node("n2")] == ["d"]
    async with running_store(database) as (again, _):
        assert await again.commit(lambda tx: (on_node(tx, "n1"), on_node(tx, "n2"))) == (["a", "c"], ["d"])
