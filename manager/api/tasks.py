"""`/tasks`."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute

from beeyard.core.errors import Unsupported
from beeyard.core.model import Task
from beeyard.core.rollout import is_dirty
from beeyard.core.states import TaskState
from beeyard.manager.api.call import Call, Reply, error_reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_task import show_task
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import find_node, find_service, find_task, task_name

_DESIRED_STATES = {
    "running": TaskState.RUNNING,
    "shutdown": TaskState.SHUTDOWN,
    "accepted": TaskState.ACCEPTED,
    "ready": TaskState.READY,
    "remove": TaskState.REMOVE,
}


def routes(context: Context) -> list[BaseRoute]:
    """The routes of this resource."""
    return [
        route("GET", "/tasks", task_list, context),
        route("GET", "/tasks/{id}", task_inspect, context),
        route("GET", "/tasks/{id}/logs", task_logs, context),
    ]


def _filter_set(context: Context) -> FilterSet[Task]:
    services = context.store.services

    def is_up_to_date(task: Task, value: str) -> bool:
        service = services.get(task.service_id)
        newest = service is not None and not is_dirty(task, service, context.store.nodes)
        return newest is (value.lower() in ("1", "true"))

    return FilterSet(
        {
            "id": lambda task, value: task.id.startswith(value),
            "name": lambda task, value: task_name(task).startswith(value),
            "label": lambda task, value: has_label(task.spec.container_labels, value),
            "service": lambda task, value: task.service_id == value,
            "node": lambda task, value: task.node_id == value,
            "desired-state": lambda task, value: task.desired_state == _DESIRED_STATES[value],
            "runtime": lambda _task, value: value == "container",
            "_up-to-date": is_up_to_date,
        }
    )


async def task_list(context: Context, call: Call) -> Reply:
    store = context.store
    filters = parse_filters(call.query.get("filters", ""))
    tests = _filter_set(context)
    tests.check(filters)
    for value in filters.get("desired-state", ()):
        if value not in _DESIRED_STATES:
            return error_reply(500, f"Invalid desired-state filter: '{value}'")
    candidates: Iterable[Task] = store.tasks.values()
    if "node" in filters:
        filters["node"] = tuple(_node_id(context, value) for value in filters["node"])
        candidates = [task for node_id in dict.fromkeys(filters["node"]) for task in store.tasks_of_node(node_id)]
    if "service" in filters:
        filters["service"] = tuple(find_service(store, value).id for value in filters["service"])
        if "node" not in filters:
            ids = dict.fromkeys(filters["service"])
            candidates = [task for service_id in ids for task in store.tasks_of_service(service_id)]
    return Reply([_show(context, task) for task in tests.apply(candidates, filters)])


def _node_id(context: Context, wanted: str) -> str:
    return context.cluster.manager_node_id if wanted == "self" else find_node(context.store, wanted).id


async def task_inspect(context: Context, call: Call) -> Reply:
    return Reply(_show(context, find_task(context.store, call.path("id"))))


async def task_logs(context: Context, call: Call) -> Reply:
    find_task(context.store, call.path("id"))
    raise Unsupported("docker service logs", "a task's output is kept on its node")


def _show(context: Context, task: Task) -> dict[str, object]:
    waits = task.status.state == TaskState.PENDING
    return show_task(task, context.store.networks, context.status.waiting_for(task.id) if waits else "")


__all__ = ["routes"]
