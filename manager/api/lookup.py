"""Finding the object that a user means: by full id, else by exact name, else by the unique start of an id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from beeyard.core.errors import Ambiguous, NotFound
from beeyard.core.model import HOST_NETWORK_ID, HOST_NETWORK_NAME, Network, Node, Service, Task
from beeyard.core.volume import Volume
from beeyard.manager.store import View

T = TypeVar("T", Node, Network, Service, Task, Volume)

HOST_NETWORK = Network(id=HOST_NETWORK_ID, name=HOST_NETWORK_NAME, driver="host", scope="swarm")


def find(kind: str, objects: Mapping[str, T], name_of: Callable[[T], str], wanted: str) -> T:
    """The one object that `wanted` means.

    Raises:
        NotFound, Ambiguous

    Source: moby `daemon/cluster/helpers.go`.
    """
    if wanted in objects:
        return objects[wanted]
    matches = [obj for obj in objects.values() if name_of(obj) == wanted] if wanted else []
    if not matches and wanted:
        matches = [obj for object_id, obj in objects.items() if object_id.startswith(wanted)]
    if not matches:
        raise NotFound(kind, wanted)
    if len(matches) > 1:
        raise Ambiguous(kind, wanted, len(matches))
    return matches[0]


def node_name(node: Node) -> str:
    """What users call a node."""
    return node.spec.name or node.description.hostname


def find_node(view: View, wanted: str) -> Node:
    """A node by id, name or start of its id."""
    return find("node", view.nodes, node_name, wanted)


def find_service(view: View, wanted: str) -> Service:
    """A service by id, name or start of its id."""
    named = view.by_name(Service, wanted) if wanted not in view.services else None
    return named or find("service", view.services, lambda service: service.spec.name, wanted)


def find_task(view: View, wanted: str) -> Task:
    """A task by id, full name or start of its id."""
    return find("task", view.tasks, task_name, wanted)


def task_name(task: Task) -> str:
    """A task's name as Docker's containers have it: service.slot.id."""
    return f"{task.service_name}.{task.slot}.{task.id}"


def all_networks(view: View) -> dict[str, Network]:
    """Every network by id, the predefined one first."""
    return {HOST_NETWORK_ID: HOST_NETWORK, **view.networks}


def find_network(view: View, wanted: str) -> Network:
    """A network by id, name or start of its id."""
    named = view.by_name(Network, wanted) if wanted not in view.networks else None
    return named or find("network", all_networks(view), lambda network: network.name, wanted)


def find_volume(view: View, wanted: str) -> Volume:
    """A cluster volume by id, name or start of its id."""
    named = view.by_name(Volume, wanted) if wanted not in view.volumes else None
    return named or find("volume", view.volumes, lambda volume: volume.name, wanted)


__all__ = [
    "HOST_NETWORK",
    "all_networks",
    "find_network",
    "find_node",
    "find_service",
    "find_task",
    "find_volume",
    "node_name",
    "task_name",
]
