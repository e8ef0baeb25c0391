"""For every node, all filters that a demand fails there, not only the first one.

What stands in one place in `filters.Ask.check` is taken apart here: the filters that change with the tasks come from the
kernel, each as a bit; the others are asked one by one of the nodes' columns, which remember the answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters
from beeyard.core.asking import Asking
from beeyard.core.demand import Demand
from beeyard.core.node_table import NodeTable
from beeyard.core.reasons import Reason

Sets = NDArray[np.uint32]

# The bit of each reason.
BIT = {reason: 1 << number for number, reason in enumerate(Reason)}

# Bits of the kernel.
_SET_OF_LINK, _ABSENT = 17, 31
_CHANGING = {
    filters.VERDICT_NOT_READY: Reason.NOT_READY,
    filters.VERDICT_RESOURCES: Reason.RESOURCES,
    filters.VERDICT_HOST_PORT: Reason.HOST_PORT,
    filters.VERDICT_MAX_REPLICAS: Reason.MAX_REPLICAS,
    filters.VERDICT_REFUSED: Reason.REFUSED,
}
_OF_NETWORKS = {filters.VERDICT_POOL: Reason.POOL_EXHAUSTED, _SET_OF_LINK: Reason.PARENT_TAKEN}


class Failing(msgspec.Struct, frozen=True):
    """The nodes, and for each the reasons why a demand does not fit there."""

    node_ids: list[str]
    sets: Sets  # by node: bits of `BIT`; 0 where it fits


def reasons_in(a_set: int) -> list[Reason]:
    """The reasons in a set, in the order of the filters."""
    return [reason for reason, bit in BIT.items() if a_set & bit]


def find_failing(table: NodeTable, asking: Asking, demand: Demand, masked: Collection[str] = ()) -> Failing:
    """All filters that a demand fails, node by node. O(nodes * filters), without a loop in Python over the nodes.

    A network of which a node has no usable pool counts under that reason alone, not as exhausted too.
    """
    raw = _check(table, asking, msgspec.structs.replace(demand, volumes=()), masked)
    sets = np.zeros(table.size, dtype=np.uint32)
    unattached = np.zeros(table.size, dtype=bool)
    for part in _parts(demand):
        fit = asking.fit(part)
        bit_of_code = np.array([0, *(BIT[reason] for reason, _ in fit.reasons)], dtype=np.uint32)
        of_part = bit_of_code[fit.codes[: table.size]]
        if part.network_ids:
            unattached |= of_part != 0
            of_part |= _translate(_check(table, asking, part, ()), _OF_NETWORKS) * (of_part == 0)
        sets |= of_part
    # All networks together may want more addresses, or other links, than there are for each alone.
    sets |= _translate(raw, _CHANGING) | _translate(raw, _OF_NETWORKS) * ~unattached
    if demand.volumes:
        sets |= ~asking.volumes.fitting(demand.volumes) * np.uint32(BIT[Reason.VOLUMES])
    rows = np.flatnonzero(raw >> _ABSENT == 0)
    ids = asking.columns.ids
    return Failing([ids[row] for row in rows.tolist()], sets[rows])


def _check(table: NodeTable, asking: Asking, demand: Demand, masked: Collection[str]) -> Sets:
    """What the kernel says, by row, in its own bits."""
    raw = np.empty(table.size, dtype=np.uint32)
    filters.check_sets(table, asking.ask(demand, masked), raw)
    return raw


def _translate(raw: Sets, bits: Mapping[int, Reason]) -> Sets:
    """Some of the kernel's bits as those of reasons."""
    sets = np.zeros_like(raw)
    for bit, reason in bits.items():
        sets |= (raw >> bit & 1) * np.uint32(BIT[reason])
    return sets


def _parts(demand: Demand) -> Iterable[Demand]:
    """Demands that each ask for one thing which does not change with the tasks."""
    nothing = Demand("")
    for field in ("image", "forwards_ports", "log_driver", "constraints", "platforms"):
        if value := getattr(demand, field):
            yield msgspec.structs.replace(nothing, **{field: value})
    for driver in demand.volume_drivers:
        yield msgspec.structs.replace(nothing, volume_drivers=(driver,))
    for network_id in demand.network_ids:
        yield msgspec.structs.replace(nothing, network_ids=(network_id,), pins=demand.pins)


__all__ = ["BIT", "Failing", "find_failing", "reasons_in"]
