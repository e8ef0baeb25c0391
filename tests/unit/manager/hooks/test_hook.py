"""Hooks as data: what cannot work is refused where it is written down."""

from __future__ import annotations

import pytest

from beeyard.core.grant import AnyGrant
from beeyard.core.model import Node, Task
from beeyard.manager.hooks import Hook, Stage, Subject, Window

NODE_BOUND = Window(Stage.SCHEDULED, Stage.ASSIGNED)


async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
    return ()


def a_hook(subject: Subject) -> Hook:
    return Hook(
        "vip",
        NODE_BOUND,
        1.0,
        applies=lambda task: True,
        reserve=reserve,
        release=lambda grant, used: None,
        restore=lambda task, grant: None,
        subject=subject,
    )


def test_hook_for_a_service_is_refused() -> None:
    """Nothing would ever run it, so it cannot be made."""
    with pytest.raises(
        AssertionError, match=r"^hook vip reserves for a service: only hooks that reserve for a task are"
    ):
        a_hook(Subject.SERVICE)
    assert a_hook(Subject.TASK).subject is Subject.TASK


@pytest.mark.parametrize(
    ("starts_at", "finished_by", "reason"),
    [
        (Stage.NEW, Stage.NEW, "is empty"),
        (Stage.ASSIGNED, Stage.SCHEDULED, "is empty"),
        (Stage.NEW, Stage.SCHEDULED, "nothing is stored at SCHEDULED"),
    ],
)
def test_window_that_cannot_work_is_refused(starts_at: Stage, finished_by: Stage, reason: str) -> None:
    """A window has a length, and ends where its grants are stored."""
    with pytest.raises(AssertionError, match=reason):
        Window(starts_at, finished_by)
    assert NODE_BOUND.has_node
    assert not Window(Stage.PENDING, Stage.ASSIGNED).has_node
