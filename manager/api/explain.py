"""`/beeyard/v1/explain`: why the tasks of a service, or one task, have no place, and what would give them one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from beeyard.core import reasons
from beeyard.core.errors import NotFound
from beeyard.core.explain import Explanation
from beeyard.core.model import Service, Task
from beeyard.core.placement import Demand
from beeyard.core.pools import pools_of
from beeyard.core.relaxation import Relaxation
from beeyard.core.states import TaskState
from beeyard.manager.api.call import BadRequest, Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_value import compact, time_of
from beeyard.manager.api.hypothesis import next_task
from beeyard.manager.api.lookup import find_service, find_task, node_name, task_name


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [route("GET", "/beeyard/v1/explain", explain, context)]


async def explain(context: Context, call: Call) -> Reply:
    """Of `service` or `task`, or of `name`, which may be either. With `nodes`, what each node lacks."""
    task, n_tasks = _meant(context, call)
    index = context.status.placement()
    explanation = index.explainer.explain(
        Demand.of(task), masked=context.status.refusing(task), n_tasks=max(1, n_tasks), nodes=call.flag("nodes")
    )
    is_stored = task.id in context.store.tasks
    shown = {
        "Service": {"ID": task.service_id, "Name": task.service_name},
        "Waiting": n_tasks,
        **(compact(Task=_show_task(context, task)) if is_stored else {}),
        **compact(Rejected=_show_rejected(context, task), Resting=_show_resting(context, task)),
        **show_explanation(context, explanation),
    }
    return Reply(shown)


def _meant(context: Context, call: Call) -> tuple[Task, int]:
    """The task to explain, and how many of its service wait as it does.

    Raises:
        NotFound, Ambiguous, BadRequest
    """
    given = {name: call.query[name] for name in ("service", "task", "name") if call.query.get(name)}
    if len(given) != 1:
        raise BadRequest("explain what? give one of service, task and name")
    (kind, wanted), store = given.popitem(), context.store
    if kind == "name":
        try:
            return _of_service(context, find_service(store, wanted))
        except NotFound:
            task = _in_slot(context, wanted) or _named(context, wanted)
            return task, int(_waits(task))
    if kind == "service":
        return _of_service(context, find_service(store, wanted))
    task = find_task(store, wanted)
    return task, int(_waits(task))


def _in_slot(context: Context, wanted: str) -> Task | None:
    """The newest task in a slot, which `docker service ps` shows as "web.3"."""
    name, _, slot = wanted.rpartition(".")
    service = context.store.by_name(Service, name)
    if service is None or not slot.isdecimal():
        return None
    tasks = [task for task in context.store.tasks_of_service(service.id) if task.slot == int(slot)]
    return max(tasks, key=lambda task: (task.created_at_s, task.id), default=None)


def _named(context: Context, wanted: str) -> Task:
    try:
        return find_task(context.store, wanted)
    except NotFound:
        raise NotFound("service or task", wanted) from None


def _of_service(context: Context, service: Service) -> tuple[Task, int]:
    """Of the tasks that wait, the one that came first and how many ask for the same; else one more that there might be."""
    tasks = context.store.tasks_of_service(service.id)
    waiting = sorted((task for task in tasks if _waits(task)), key=lambda task: (task.created_at_s, task.slot, task.id))
    if not waiting:
        return next_task(service, len(tasks) + 1), 0
    demand = Demand.of(waiting[0])
    return waiting[0], sum(Demand.of(task) == demand for task in waiting)


def _waits(task: Task) -> bool:
    """Whether a task has no node and should have one."""
    return not task.node_id and task.status.state < TaskState.ASSIGNED and task.desired_state <= TaskState.RUNNING


def _show_task(context: Context, task: Task) -> dict[str, Any]:
    node = context.store.nodes.get(task.node_id)
    return {
        "ID": task.id,
        "Name": task_name(task),
        "State": task.status.state.name.lower(),
        **compact(
            Message=context.status.waiting_for(task.id) or task.status.message,
            Err=task.status.err,
            Node=node_name(node) if node is not None else task.node_id,
        ),
    }


def _rejected(context: Context, asked: Task) -> tuple[Task, Task | None] | None:
    """The last task that its node rejected, in a slot in which none has run since, and the one that is there instead.

    Of the slot of `asked`, or of all slots of its service when that is no task that there is.
    """
    found: dict[int, tuple[Task, Task | None]] = {}
    is_stored = asked.id in context.store.tasks
    tasks = [t for t in context.store.tasks_of_service(asked.service_id) if not is_stored or t.slot == asked.slot]
    for task in sorted(tasks, key=lambda task: (task.created_at_s, task.id)):
        if task.status.state is TaskState.REJECTED and task.desired_state < TaskState.REMOVE:
            found[task.slot] = task, None
        elif task.status.state >= TaskState.RUNNING:
            found.pop(task.slot, None)
        elif task.slot in found:
            found[task.slot] = found[task.slot][0], task
    return max(found.values(), key=lambda pair: (pair[0].status.at_s, pair[0].id), default=None)


def _show_rejected(context: Context, asked: Task) -> dict[str, Any]:
    pair = _rejected(context, asked)
    if pair is None:
        return {}
    task, instead = pair
    at_s = context.status.next_try_at_s(task)
    return {
        **_show_task(context, task),
        "At": time_of(task.status.at_s),
        **compact(NextTry="" if at_s is None else time_of(at_s)),
        **(compact(Instead=_show_task(context, instead)) if instead is not None else {}),
    }


def _show_resting(context: Context, task: Task) -> list[dict[str, Any]]:
    """Pools of the task's networks in which all that is not in use rests."""
    networks = list(context.store.networks.values())
    named = [network for network in networks if network.id in task.spec.network_ids]
    shown = []
    for pool in {pool.pool_id: pool for network in named for pool in pools_of(network, networks)}.values():
        usage = context.status.pool_usage(pool.pool_id)
        if usage is not None and not usage.free and usage.cooling:
            aside = len(context.status.put_aside(pool.pool_id))
            counts = {"Used": usage.used, "Resting": max(0, usage.cooling - aside), "PutAside": aside}
            shown.append({"Pool": pool.name, **counts})
    return shown


def show_explanation(context: Context, explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    return {
        "Nodes": explanation.n_nodes,
        "Fitting": explanation.n_fitting,
        "Explanation": explanation.sentence,
        "Reasons": [
            {"Reason": reason, "Detail": detail, "Nodes": n, "Text": reasons.sentence(reason, detail, n)}
            for reason, detail, n in explanation.counts
        ],
        "Relaxations": [_show_relaxation(context, relaxation) for relaxation in explanation.relaxations],
        **compact(
            PerNode=[
                {
                    **show_node(context, of_node.node_id),
                    "Lacks": [_show_lack(context, reason, detail) for reason, detail in of_node.lacks],
                }
                for of_node in explanation.nodes
            ]
        ),
    }


def _show_lack(context: Context, reason: str, detail: str) -> dict[str, Any]:
    network = context.store.networks.get(detail)
    return {
        "Reason": reason,
        "Detail": detail,
        "Text": reasons.lack(reason, detail if network is None else network.name),
    }


def _show_relaxation(context: Context, relaxation: Relaxation) -> dict[str, Any]:
    return {
        "Text": relaxation.text,
        "Nodes": relaxation.n_nodes,
        "Such": [show_node(context, node_id) for node_id in relaxation.node_ids],
        "Changes": [
            {"Kind": change.what, "Text": change.text, **compact(Name=change.name, Amount=change.amount)}
            for change in relaxation.changes
        ],
    }


def show_node(context: Context, node_id: str) -> dict[str, str]:
    """A node by id and name."""
    node = context.store.nodes.get(node_id)
    return {"ID": node_id, "Name": node_id if node is None else node_name(node)}


def show_nodes(context: Context, node_ids: Sequence[str]) -> list[dict[str, str]]:
    """Nodes by id and name."""
    return [show_node(context, node_id) for node_id in node_ids]


__all__ = ["routes", "show_explanation", "show_node", "show_nodes"]
