"""What the store refuses to write: states that go back, tasks that move."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.model import NodeStatus, TaskStatus
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.store import Transaction
from beeyard.manager.store.view import Tables
from tests.support.builders import a_node, a_task

N = NodeState


@pytest.mark.parametrize(
    "change",
    [
        {"status": TaskStatus(state=TaskState.PENDING)},
        {"desired_state": TaskState.READY},
        {"node_id": "n2"},
    ],
)
def test_going_back_is_a_bug(change: dict[str, Any]) -> None:
    """A task's states only grow and it never moves: the store refuses to store anything else."""
    transaction = Transaction(Tables(), 0, 1000.0)
    running = transaction.create(a_task("t", node_id="n1", state=TaskState.RUNNING))
    with pytest.raises(AssertionError):
        transaction.update(msgspec.structs.replace(running, **change))
    assert transaction.tasks["t"] == running


@pytest.mark.parametrize("now", N)
@pytest.mark.parametrize("then", N)
def test_node_that_is_down_stays_so_until_it_speaks(now: NodeState, then: NodeState) -> None:
    """A node that is DOWN becomes READY and nothing else; nobody is out of touch who was not READY a moment ago."""
    transaction = Transaction(Tables(), 0, 1000.0)
    node = transaction.create(a_node("n1", state=now))
    moved = msgspec.structs.replace(node, status=NodeStatus(state=then, message="moved"))
    wrong = [(N.DOWN, N.UNKNOWN), (N.DOWN, N.DISCONNECTED), (N.UNKNOWN, N.DISCONNECTED)]
    if (now, then) in wrong:
        with pytest.raises(AssertionError, match=rf"^node n1: {now.name} may not become {then.name}$"):
            transaction.update(moved)
    else:
        assert transaction.update(moved).status.state is then
