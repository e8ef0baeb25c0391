"""What the lifecycle stores: tasks on their way to a node, many in one transaction.

Each task is a firebreak of its own. Its single write comes last, so of one that raises nothing is in the transaction; the
others of its lot are stored, and the manager lives. Whoever called lets that task rest: what raised once does so again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import structlog

from beeyard.core.demand import Findings
from beeyard.core.grant import AddressGrant, AnyGrant
from beeyard.core.model import Task, TaskStatus
from beeyard.core.placement import PlacementIndex
from beeyard.core.publishing import publish
from beeyard.core.states import TaskState
from beeyard.core.volume import Volume
from beeyard.manager.plan import Plan
from beeyard.manager.store import Transaction

MESSAGE_PENDING = "pending task scheduling"
MESSAGE_ASSIGNED = "scheduler assigned task to node"
MESSAGE_CONFIRMED = "scheduler confirmed task can run on preassigned node"

log = structlog.get_logger(__name__)


def admit(
    tasks: Sequence[Task], grants_of: Callable[[str], tuple[AnyGrant, ...]], tx: Transaction
) -> list[tuple[AnyGrant, ...] | Exception | None]:
    """NEW → PENDING.

    Args:
        grants_of: task id → what hooks have reserved for it and is not stored yet.

    Returns:
        For each task the grants stored with it, None when it is not wanted any more, or an error of ours.
    """
    results: list[tuple[AnyGrant, ...] | Exception | None] = []
    for task in tasks:
        try:
            results.append(_admit_one(task, grants_of(task.id), tx))
        except Exception as error:
            log.exception("task not admitted", stage="NEW", task=task.id)
            results.append(error)
    return results


def assign(plans: Sequence[Plan], index: PlacementIndex, tx: Transaction) -> list[str | Exception]:
    """PENDING → ASSIGNED. For each plan "" or why it does not hold any more, or an error of ours."""
    faults: list[str | Exception] = []
    findings, status = Findings(), TaskStatus(state=TaskState.ASSIGNED, message=MESSAGE_ASSIGNED, at_s=tx.now_s)
    for plan in plans:
        try:
            faults.append(_assign_one(plan, index, tx, findings, status))
        except Exception as error:
            log.exception("task not assigned", stage="SCHEDULED", task=plan.task.id, node=plan.node.id)
            faults.append(error)
    return faults


def _admit_one(task: Task, grants: tuple[AnyGrant, ...], tx: Transaction) -> tuple[AnyGrant, ...] | None:
    now = tx.tasks.get(task.id)
    if now is None or now.status.state != TaskState.NEW or now.desired_state > TaskState.RUNNING:
        return None
    status = TaskStatus(state=TaskState.PENDING, message=MESSAGE_PENDING, at_s=tx.now_s)
    tx.change(now, status=status, grants=(*now.grants, *grants))
    return grants


def _assign_one(plan: Plan, index: PlacementIndex, tx: Transaction, findings: Findings, status: TaskStatus) -> str:
    fault = plan.fault(tx, index, findings)
    if not fault:
        task = tx.tasks[plan.task.id]
        if task.bound_node_id:
            status = msgspec.structs.replace(status, message=MESSAGE_CONFIRMED)
        grants = _in_order_of_links((*task.grants, *plan.grants()), task.spec.network_ids)
        for use in plan.volumes:
            tx.update(publish(tx.find(Volume, use.volume_id), plan.node.id))
        tx.change(task, node_id=plan.node.id, status=status, grants=grants)
    return fault


def _in_order_of_links(grants: tuple[AnyGrant, ...], network_ids: Sequence[str]) -> tuple[AnyGrant, ...]:
    """Grants of addresses in the order of the task's networks, whichever hook was done first: eth0 is the first network's."""
    if len(network_ids) < 2:
        return grants
    order = {network_id: position for position, network_id in enumerate(network_ids)}
    return tuple(sorted(grants, key=lambda g: order.get(g.network_id, 0) if isinstance(g, AddressGrant) else -1))
