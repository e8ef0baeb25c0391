"""`/beeyard/v1/whatif`: what would happen if a service were created or scaled, nodes were lost, nodes were drained."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import trio
from starlette.routing import Route

from beeyard.core import constraint
from beeyard.core.demand import Decision
from beeyard.core.errors import InvalidSpec
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Service, Task
from beeyard.core.placement import Demand, Placed
from beeyard.core.states import TaskState
from beeyard.core.whatif import Aftermath
from beeyard.manager.api.call import BadRequest, Call, Reply, require_object, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_placement import REPLICAS_MAX
from beeyard.manager.api.docker_service import read_service_spec
from beeyard.manager.api.explain import show_explanation, show_node, show_nodes
from beeyard.manager.api.fields import Fields
from beeyard.manager.api.hypothesis import new_service, next_task
from beeyard.manager.api.lookup import find_node, find_service
from beeyard.manager.control.service import checked_placement

# Tasks that one question is about at most: 0.2 to 0.3 s, during which the manager does nothing else.
TASKS_MAX = 25_000
QUESTIONS = ("Service", "Scale", "Lost", "Drain")


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [route("POST", "/beeyard/v1/whatif", what_if, context)]


async def what_if(context: Context, call: Call) -> Reply:
    """One question: `Service` with a service spec, `Scale` with a service and replicas, `Lost` or `Drain` with nodes."""
    body = require_object(call.json())
    asked = [name for name in QUESTIONS if body.get(name) is not None]
    if len(asked) != 1 or len(body) != 1:
        raise BadRequest(f"what if what? give one of {', '.join(QUESTIONS)}")
    match asked[0]:
        case "Service":
            spec = read_service_spec(body["Service"])
            return Reply(_service(context, new_service(context.store, spec), spec.replicas, 0))
        case "Scale":
            return Reply(_scale(context, Fields(body["Scale"], "Scale")))
    return Reply(_without(context, asked[0], Fields(body[asked[0]], asked[0])))


def _scale(context: Context, fields: Fields) -> dict[str, Any]:
    """More tasks of a service that exists: those that it has not and should have are among them."""
    wanted = fields.text("Service")
    if not wanted:
        raise InvalidSpec(fields.name_of("Service"), "give the name or id of a service")
    service = find_service(context.store, wanted)
    replicas = fields.integer("Replicas", service.spec.replicas, maximum=REPLICAS_MAX)
    fields.finish()
    checked_placement(context.store, msgspec.structs.replace(service.spec, replicas=replicas), service.spec)
    tasks = context.store.tasks_of_service(service.id)
    staffed = sum(task.desired_state <= TaskState.RUNNING and task.holds_room for task in tasks)
    return _service(context, service, max(0, replicas - staffed), staffed)


def _service(context: Context, service: Service, n_tasks: int, n_before: int) -> dict[str, Any]:
    _check_size(n_tasks, "tasks to place")
    index = context.status.placement()
    demand = Demand.of(next_task(service, n_before + 1))

    def shown(decision: Decision) -> dict[str, Any]:
        nodes = Counter(placed.node_id for placed in decision.placed)
        answer: dict[str, Any] = {
            "Before": n_before,
            "Placed": len(decision.placed),
            "Unplaced": decision.unplaced,
            "On": [{**show_node(context, node_id), "Tasks": n} for node_id, n in sorted(nodes.items())],
        }
        if decision.unplaced:
            answer |= show_explanation(context, index.explainer.explain(demand, n_tasks=decision.unplaced))
        return answer

    return index.what_if(trio.current_time()).service_and(demand, n_tasks, shown)


def _without(context: Context, question: str, fields: Fields) -> dict[str, Any]:
    node_ids = _nodes(context, fields)
    index, store = context.status.placement(), context.store
    tasks = [task for node_id in node_ids for task in store.tasks_of_node(node_id)]
    _check_size(len(tasks), f"tasks on {len(node_ids)} {'node' if len(node_ids) == 1 else 'nodes'}")
    stay = {task.id: "" for task in tasks if task.desired_state > TaskState.RUNNING}
    if question == "Lost":
        for task in tasks:
            if task.mac_per_slot and not task.pins:
                stay.setdefault(
                    task.id, "waits for its MAC address, which the lost task keeps until its lease has ended"
                )
        after = index.what_if(trio.current_time()).lost(node_ids, stay=stay)
    else:
        after = index.what_if(trio.current_time()).drained(
            node_ids, stay=stay, pools_of=lambda task_id: _pools_of(store.tasks.get(task_id))
        )
    return {
        "Nodes": show_nodes(context, after.node_ids),
        "Moves": [
            {**_show_task(context, move.task_id, move.node_id), "To": show_node(context, move.to.node_id)}
            | _show_pools(move.to)
            for move in after.moves
        ],
        "Stuck": _show_stuck(context, after),
    }


def _check_size(n_tasks: int, what: str) -> None:
    if n_tasks > TASKS_MAX:
        reason = f"{n_tasks} {what}: ask about {TASKS_MAX} at a time, the manager does nothing else meanwhile"
        raise InvalidSpec("question", reason)


def _nodes(context: Context, fields: Fields) -> list[str]:
    """Ids of the nodes that a question means: `Node`, one of them, or `Constraint`, all that satisfy it.

    Raises:
        InvalidSpec, NotFound, Ambiguous
    """
    wanted, expression = fields.text("Node"), fields.text("Constraint")
    name = fields.name_of("Node")
    fields.finish()
    if bool(wanted) == bool(expression):
        raise InvalidSpec(name, "give either a node or, as Constraint, an expression such as node.labels.rack==r1")
    if wanted:
        return [find_node(context.store, wanted).id]
    parsed = constraint.parse_all(constraint.split(expression))
    if not parsed:  # which every node would satisfy
        raise InvalidSpec(
            fields.name_of("Constraint"), f"{expression!r:.80} has no expression, such as node.labels.rack==r1"
        )
    nodes = context.store.nodes.values()
    satisfies = constraint.matcher(parsed, nodes)
    meant = [node.id for node in nodes if satisfies(node)]
    if not meant:
        constraint.check_properties(parsed, nodes)
    return meant


def _pools_of(task: Task | None) -> list[str]:
    """Pools that have an address more when a task has ended."""
    grants = () if task is None or task.pins else task.grants
    return [grant.pool_id for grant in grants if isinstance(grant, AddressGrant)]


def _show_task(context: Context, task_id: str, node_id: str) -> dict[str, Any]:
    task = context.store.tasks.get(task_id)
    return {
        "Task": task_id,
        "Service": "" if task is None else task.service_name,
        "Slot": 0 if task is None else task.slot,
        "From": show_node(context, node_id),
    }


def _show_pools(placed: Placed) -> dict[str, Any]:
    return {"Pools": list(placed.pool_ids)} if placed.pool_ids else {}


def _show_stuck(context: Context, after: Aftermath) -> list[dict[str, Any]]:
    return [
        {**_show_task(context, stuck.task_id, stuck.node_id), "Explanation": stuck.explanation} for stuck in after.stuck
    ]


__all__ = ["routes"]
