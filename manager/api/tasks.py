"""`/tasks`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import msgspec
import trio
from starlette.routing import Route

from beeyard.core.errors import Unsupported
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Node, Task
from beeyard.core.rollout import is_dirty
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.api.call import Call, Reply, error_reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_task import show_task
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import find_node, find_service, find_task, task_name

# About 12 µs each when they were not written yet: the agents' sessions get their turn every 6 ms.
TASKS_IN_A_ROW = 500
# About 1 KB each.
TASKS_KEPT_MAX = 20_000
_DESIRED_STATES = {
    "running": TaskState.RUNNING,
    "shutdown": TaskState.SHUTDOWN,
    "accepted": TaskState.ACCEPTED,
    "ready": TaskState.READY,
    "remove": TaskState.REMOVE,
}


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    printer = TaskPrinter(context)
    return [
        route("GET", "/tasks", functools.partial(task_list, printer), context),
        route("GET", "/tasks/{id}", functools.partial(task_inspect, printer), context),
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


async def task_list(printer: TaskPrinter, context: Context, call: Call) -> Reply:
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
    shown: list[object] = []
    for number, task in enumerate(tests.apply(candidates, filters), 1):
        shown.append(printer.show(task))
        if number % TASKS_IN_A_ROW == 0:
            await trio.lowlevel.checkpoint()
    return Reply(shown)


def _node_id(context: Context, wanted: str) -> str:
    return context.cluster.manager_node_id if wanted == "self" else find_node(context.store, wanted).id


async def task_inspect(printer: TaskPrinter, context: Context, call: Call) -> Reply:
    return Reply(printer.show(find_task(context.store, call.path("id"))))


async def task_logs(context: Context, call: Call) -> Reply:
    find_task(context.store, call.path("id"))
    raise Unsupported("docker service logs", "a task's output is in TASK_ID.log of its agent's log directory")


def _why_it_is_kept(task: Task, nodes: Mapping[str, Node]) -> str:
    """What holds the addresses of a task that should have stopped, on a node that cannot be asked; "" for others."""
    node = nodes.get(task.node_id)
    if task.desired_state <= TaskState.RUNNING or not task.holds_room:
        return ""
    if node is None or node.status.state is not NodeState.DOWN:
        return ""
    addresses = [
        address.partition("/")[0]
        for grant in task.grants
        if isinstance(grant, AddressGrant)
        for address in grant.addresses
    ]
    if not addresses:
        return ""
    until = "until it returns, the lease ends, or docker node rm --force says that it is off"
    return f"node {node.description.hostname} is down and keeps {', '.join(addresses)} {until}"


class TaskPrinter:
    """Tasks as JSON, each version written once: a command that shows progress asks for all of them five times a second."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Invariant: the entry of an id is of exactly the Task object beside it.
        self._written: dict[str, tuple[Task, msgspec.Raw]] = {}

    def show(self, task: Task) -> object:
        """What to encode for a task."""
        networks = self._context.store.networks
        if task.status.state == TaskState.PENDING:
            # What it waits for is no part of the stored task.
            return show_task(task, networks, waiting_for=self._context.status.waiting_for(task.id))
        held_back = self._context.status.held_back(task) or _why_it_is_kept(task, self._context.store.nodes)
        if held_back:
            return show_task(task, networks, held_back=held_back)
        entry = self._written.get(task.id)
        if entry is not None and entry[0] is task:
            return entry[1]
        raw = msgspec.Raw(msgspec.json.encode(show_task(task, networks)))
        self._forget_some()
        self._written[task.id] = (task, raw)
        return raw

    def _forget_some(self) -> None:
        """Keep no more than is of use: tasks that are gone, when there are as many as others, and everything at the limit."""
        tasks = self._context.store.tasks
        if len(self._written) >= 2 * len(tasks) + TASKS_IN_A_ROW:
            self._written = {id_: entry for id_, entry in self._written.items() if id_ in tasks}
        if len(self._written) >= TASKS_KEPT_MAX:
            self._written.clear()


__all__ = ["routes"]
