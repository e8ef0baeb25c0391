"""What a manager holds in memory for tasks, against what is stored: it may hold nothing that nobody would give back.

This looks inside on purpose: a room or a hook's run that was forgotten shows nowhere outside, until the nodes are full.
"""

from __future__ import annotations

from beeyard.core.states import TaskState
from beeyard.manager.lifecycle import Lifecycle
from beeyard.manager.store import View


def check_holdings(view: View, lifecycle: Lifecycle) -> None:
    """Rooms are those of stored tasks and plans, addresses are planned for plans alone, hooks run for tasks that wait.

    Holds whenever the lifecycle has taken over all changes; a plan under way is no leak.
    """
    plans, holds = lifecycle._plans, lifecycle._planner.index._holds.by_task
    expected = {task.id for task in view.tasks.values() if task.holds_room} | set(plans)
    assert set(holds) == expected, "rooms held are not those of tasks and plans"
    with_volumes = {task.id for task in view.tasks.values() if task.holds_room and task.volumes}
    with_volumes |= {task_id for task_id, plan in plans.items() if plan.demand.volumes}
    assert set(lifecycle._planner.index.volumes._uses) == with_volumes, "volumes held are not those of tasks and plans"
    planned = sorted(task_id for task_id, hold in holds.items() if hold.plans and task_id not in plans)
    assert planned == [], "addresses are planned for tasks without a plan"
    waiting = {
        task.id
        for task in view.tasks.values()
        if task.status.state < TaskState.ASSIGNED and task.desired_state <= TaskState.RUNNING
    }
    forgotten = sorted(set(lifecycle._early._runs) - waiting - set(lifecycle._admitting) - set(plans))
    assert forgotten == [], "hooks run for tasks that do not wait"
