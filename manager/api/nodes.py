"""`/nodes`."""

from __future__ import annotations

from starlette.routing import Route

from beeyard.core.model import Node, NodeDescription, NodeStatus
from beeyard.manager.api.call import Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_node import read_node_spec, show_node, shown_role
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import find_node, node_name
from beeyard.manager.control.node import remove_node, update_node


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", "/nodes", node_list, context),
        route("GET", "/nodes/{id}", node_inspect, context),
        route("DELETE", "/nodes/{id}", node_remove, context),
        route("POST", "/nodes/{id}/update", node_update, context),
    ]


async def node_list(context: Context, call: Call) -> Reply:
    cluster = context.cluster
    filters: FilterSet[Node] = FilterSet(
        {
            "id": lambda node, value: node.id.startswith(value),
            "name": lambda node, value: node_name(node).startswith(value),
            "label": lambda node, value: has_label(node.description.engine_labels, value),
            "node.label": lambda node, value: has_label(node.spec.labels, value),
            "role": lambda node, value: shown_role(node, cluster) == value,
            # Whoever joined was accepted.
            "membership": lambda _node, value: value == "accepted",
        }
    )
    nodes = filters.apply(context.store.nodes.values(), parse_filters(call.query.get("filters", "")))
    status, address, own = context.status, context.manager_address, context.store.nodes.get(cluster.manager_node_id)
    return Reply([show_node(node, cluster, address, status.room(node.id), own) for node in nodes])


async def node_inspect(context: Context, call: Call) -> Reply:
    wanted = call.path("id")
    if wanted == context.cluster.manager_node_id and wanted not in context.store.nodes:
        node = _manager_without_agent(context)
    else:
        node = find_node(context.store, wanted)
    own = context.store.nodes.get(context.cluster.manager_node_id)
    return Reply(show_node(node, context.cluster, context.manager_address, context.status.room(node.id), own))


def _manager_without_agent(context: Context) -> Node:
    """The manager's own host before its agent has joined: `docker swarm join-token` asks for its address."""
    status = NodeStatus(message="no agent of the manager's own host has joined")
    description = NodeDescription(hostname=context.host.hostname)
    return Node(id=context.cluster.manager_node_id, description=description, status=status)


async def node_update(context: Context, call: Call) -> Reply:
    node = find_node(context.store, call.path("id"))
    version = call.version("node")
    spec = read_node_spec(call.json(), node, context.cluster)
    await update_node(context.store, node.id, version, spec)
    return Reply()


async def node_remove(context: Context, call: Call) -> Reply:
    node = find_node(context.store, call.path("id"))
    await remove_node(context.store, node.id, force=call.flag("force"))
    return Reply()


__all__ = ["routes"]
