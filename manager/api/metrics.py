"""`/beeyard/v1/metrics`: nodes, packing and gossip as this manager sees them, in the text format that Prometheus reads.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.routing import Route

from beeyard.core.resources import Resources, Room
from beeyard.manager.api.call import Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.discovery import metric_lines
from beeyard.manager.api.lookup import node_name
from beeyard.manager.api.status import Packing

_SERIES: tuple[tuple[str, str, Callable[[Room], Resources]], ...] = (
    ("total", "What a node has for tasks", lambda room: room.total),
    ("reserved", "What the tasks of a node reserve", lambda room: room.taken),
    ("free", "What a node has left for tasks", lambda room: room.free),
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [route("GET", "/beeyard/v1/metrics", metrics, context)]


async def metrics(context: Context, call: Call) -> Reply:
    rooms: list[tuple[str, Room]] = []
    for node in sorted(context.store.nodes.values(), key=lambda node: (node_name(node), node.id)):
        room = context.status.room(node.id)
        if room is not None:
            rooms.append((f'node="{_escaped(node_name(node))}",node_id="{node.id}"', room))
    lines = [*_lines(rooms), *_packing_lines(context.status.packing)]
    if context.status.published is not None:
        lines += metric_lines(context.status.published)
    text = "".join(f"{line}\n" for line in lines) + context.status.gossip_metrics
    return Reply(text.encode(), content_type=CONTENT_TYPE)


def _lines(rooms: list[tuple[str, Room]]) -> Iterator[str]:
    for name, what, of in _SERIES:
        metric = f"beeyard_node_resource_{name}"
        yield f"# HELP {metric} {what}: cores, bytes, or a number of a generic kind."
        yield f"# TYPE {metric} gauge"
        for labels, room in rooms:
            for kind, amount in _amounts(of(room)):
                yield f'{metric}{{{labels},kind="{_escaped(kind)}"}} {amount}'
    yield "# HELP beeyard_node_tasks Tasks that have a place on a node."
    yield "# TYPE beeyard_node_tasks gauge"
    for labels, room in rooms:
        yield f"beeyard_node_tasks{{{labels}}} {room.n_tasks}"


def _packing_lines(packing: Packing) -> Iterator[str]:
    """A gap of 0.01 says that 1 % more nodes were opened than this kind of resource alone needs at least."""
    bounds = [(kind, bound) for kind, bound, _ in packing.by_kind]
    gaps = [(kind, f"{gap:.9g}") for kind, _, gap in packing.by_kind if gap is not None]
    for name, kind_of, what, values in (
        ("batches_total", "counter", "Batches that were packed node by node.", packing.n_batches),
        ("tasks_total", "counter", "Tasks that got their place in such a batch.", packing.n_tasks),
        ("opened_nodes", "gauge", "Empty nodes that the last batch took.", packing.opened),
        ("bound_nodes", "gauge", "Empty nodes that any packing of the last batch takes, by resource.", bounds),
        ("gap", "gauge", "By what part the last batch took more, by resource.", gaps),
    ):
        metric = f"beeyard_packing_{name}"
        yield f"# HELP {metric} {what}"
        yield f"# TYPE {metric} {kind_of}"
        if isinstance(values, int):
            yield f"{metric} {values}"
        else:
            for kind, value in values:
                yield f'{metric}{{kind="{_escaped(kind)}"}} {value}'


def _amounts(resources: Resources) -> Iterator[tuple[str, str]]:
    yield "cpu", f"{resources.cpu_nano / 10**9:.9g}"
    yield "memory", str(resources.memory_bytes)
    for kind, amount in resources.generic_amounts:
        yield f"generic/{kind}", str(amount)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["routes"]
