"""Short ways to make an index of nodes and to read a decision."""

from __future__ import annotations

from collections import Counter

from beeyard.core.placement import Decision, Demand, PlacementIndex
from tests.support.builders import a_node

WEB = Demand("web")


def an_index(*node_ids: str) -> PlacementIndex:
    index = PlacementIndex()
    for node_id in node_ids:
        index.set_node(a_node(node_id))
    return index


def ids(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(n)]


def nodes_of(decision: Decision) -> list[str]:
    assert decision.unplaced == 0
    return [placed.node_id for placed in decision.placed]


def per_node(decision: Decision) -> list[int]:
    """How many tasks the nodes got, most first."""
    return sorted(Counter(nodes_of(decision)).values(), reverse=True)
