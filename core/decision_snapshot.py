"""What is in a placement index, as messages of a decision log that put the same into an empty one.

The same decisions follow, whatever is told to both: rows keep their order, and what orders nothing (indexes, memoised
answers) is left out. What `fgd` has learned is told, but the mix that it made of it is not: writing a snapshot has the index
make it anew, as whoever reads the snapshot does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from beeyard.core import decision_log as log
from beeyard.core.demand import Demand
from beeyard.core.model import HostPort, Node, NodeDescription, NodeSpec
from beeyard.core.placement import PlacementIndex
from beeyard.core.resources import GenericResource, Resources

# Of nodes that are there for a moment, to give kinds and rows their numbers.
_NOBODY = " nobody"


def snapshot(
    index: PlacementIndex,
    networks: Iterable[log.SetNetwork],
    free: Mapping[str, int],
    holes: Sequence[int],
    number: Callable[[Demand], int],
) -> Iterator[log.AnyEntry]:
    """The messages, in the order in which they are to be applied.

    Args:
        networks: all of them, those told last at the end.
        free: by pool, what was told last.
        holes: rows of removed nodes, that which is used next at the end.
        number: gives a demand its number, and sees to it that the log says so first.
    """
    holds, volumes = index._holds, index._asking.volumes
    if index._kinds.names:
        yield log.KindNames(tuple(index._kinds.names))
    for row, node in enumerate(index._asking.columns.nodes):
        yield log.SetNode(Node(id=f"{_NOBODY}{row}") if node is None else node)
    for row in holes:
        yield log.RemoveNode(f"{_NOBODY}{row}")
    yield from networks
    for pool_id, amount in free.items():
        yield log.SetPoolFree(pool_id, amount)
    for volume in volumes._volumes.values():
        yield log.SetVolume(volume)
    for task_id, hold in holds.by_task.items():
        yield log.Hold(task_id, number(hold.demand), hold.node_id, hold.links, (), hold.plans, hold.pools)
    for task_id, uses in volumes._uses.items():
        node_id = volumes.users(uses[0].volume_id)[task_id].node_id
        yield log.Reserve(task_id, node_id, uses)
    for (node_id, port), n in _chosen_ports(index).items():
        for _ in range(n):
            yield log.TakePorts(node_id, (port,))
    yield from _failures(index)
    strategies = index._strategies
    strategies._fragments, strategies._n_mixed = None, 0
    yield log.Usual(tuple(strategies._asked_for.items()), strategies._n_asked_for)


def _chosen_ports(index: PlacementIndex) -> Counter[tuple[str, HostPort]]:
    """Ports that are taken by others than holds."""
    taken = Counter({(node_id, port): n for port, nodes in index.ports._taken.items() for node_id, n in nodes.items()})
    for hold in index._holds.by_task.values():
        if hold.counted and hold.demand.host_ports:
            taken.subtract((hold.node_id, port) for port in hold.demand.host_ports)
    return +taken


def _failures(index: PlacementIndex) -> Iterator[log.Failure]:
    noted = [
        log.Failure(service_id, version, node_id, at_s)
        for (service_id, version), nodes in index._failures._failures.items()
        for node_id, times in nodes.items()
        for at_s in times
    ]
    yield from sorted(noted, key=lambda failure: failure.at_s)


def restore(index: PlacementIndex, entry: log.KindNames | log.Usual | log.Hold, demand: Demand | None = None) -> None:
    """Apply a message that only snapshots have.

    Args:
        demand: of a hold.
    """
    match entry:
        case log.KindNames():
            for name in entry.names:
                offer = Resources(generic=(GenericResource(kind=name, value=1),))
                index.set_node(Node(id=_NOBODY, spec=NodeSpec(), description=NodeDescription(resources=offer)))
            index.remove_node(_NOBODY)
        case log.Usual():
            index._strategies._asked_for = dict(entry.counts)
            index._strategies._n_asked_for = entry.n_tasks
        case log.Hold():
            assert demand is not None
            index.hold(entry.task_id, demand, entry.node_id, links=entry.links, volumes=entry.volumes)
            hold = index._holds.by_task[entry.task_id]
            hold.plans, hold.pools = entry.plans, entry.pools
            index._pools.plan(entry.plans)


__all__ = ["restore", "snapshot"]
