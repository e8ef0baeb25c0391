"""What the planner makes of a manager's settings."""

from __future__ import annotations

import pytest

from beeyard.core.placement import Demand
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.planner import Planner
from beeyard.manager.store.view import Tables, View
from tests.support.builders import CPU, GIB, a_node


@pytest.mark.parametrize(("setting", "named", "n_nodes"), [("spread", "", 2), ("pack", "", 1), ("pack", "spread", 2)])
def test_tasks_that_name_no_strategy_are_placed_by_the_clusters(setting: str, named: str, n_nodes: int) -> None:
    planner = Planner(View(Tables()), AddressLedger(), setting)
    for node_id in ("n1", "n2"):
        planner.index.set_node(a_node(node_id))
    demand = Demand("s1", cpu_nano=CPU, memory_bytes=GIB, strategy=named)
    placed = planner.index.place(demand, ["t1", "t2"]).placed
    assert len({where.node_id for where in placed}) == n_nodes
