"""All ways of the kernel to spread (walk, scan, rounds, tree) against plain Python, on tables large enough for each."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core import packing
from beeyard.core.node_table import Needs
from beeyard.core.placement import Demand, PlacementIndex
from tests.support.builders import a_node
from tests.support.examples import examples
from tests.support.spread_cluster import SpreadCluster


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), seed=st.integers(0, 1 << 32), n_rows=st.sampled_from([1, 63, 64, 65, 257, 700]))
def test_a_group_goes_where_plain_python_puts_its_tasks(data: st.DataObject, seed: int, n_rows: int) -> None:
    """Whatever the share of occupied and crowded nodes, the limits and the pools, twice in a row with changes between."""
    occupied = data.draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    cluster = SpreadCluster(seed, n_rows, occupied=occupied, crowded=data.draw(st.sampled_from([0.0, 0.03, 1.0])))
    for _ in range(2):
        rules = {
            "limit": data.draw(st.sampled_from([0, 0, 1, 3])),
            "one_per_node": data.draw(st.sampled_from([False, False, True])),
            "pools": data.draw(st.booleans()),
            "faulty": data.draw(st.booleans()),
            "tree": data.draw(st.booleans()),
        }
        needs = data.draw(st.sampled_from([[0, 0, 0], [1, 0, 0], [3, 5, 0], [17, 1, 1], [0, 41, 0]]))
        n_tasks = data.draw(st.sampled_from([1, 2, 40, 400]))
        ask = cluster.ask(Needs(enumerate(needs)), **rules)
        rows = np.full(n_tasks, -9, dtype=np.int32)
        pools = np.full((n_tasks, ask.n_networks), -9, dtype=np.int32)
        n_placed = packing.spread(cluster.table, ask, rows, pools)
        expected = cluster.peer(needs, n_tasks, **rules)
        chosen = pools[:n_placed, 0].tolist() if rules["pools"] else [-1] * n_placed
        assert expected == list(zip(rows[:n_placed].tolist(), chosen, strict=True))
        assert cluster.peer_pools == cluster.pool_free.tolist()
        assert [row["service"] for row in cluster.rows] == cluster.service.tolist()
        assert [(row["free"], row["tasks"], row["ready"]) for row in cluster.rows] == [
            (free, tasks, ready) for free, _, tasks, ready in map(cluster.table.row, range(n_rows))
        ]
        cluster.change_a_little()


def test_rows_that_fail_for_reasons_without_a_bitmap_are_found_out_at_once() -> None:
    """Most nodes have the port in use: after a few hundred tries a scan says which have not."""
    cluster = SpreadCluster(5, 2000, occupied=0, crowded=0)
    for row in cluster.rows:
        row["port"] = int(row["row"] < 1990)
    rules = {"limit": 0, "one_per_node": True, "pools": False, "faulty": False, "tree": False}
    rows = np.empty(20, dtype=np.int32)
    ask = cluster.ask(Needs(()), **rules)
    n_placed = packing.spread(cluster.table, ask, rows, np.empty((20, 0), dtype=np.int32))
    assert rows[:n_placed].tolist() == [row for row, _ in cluster.peer([0, 0, 0], 20, **rules)]


@pytest.mark.parametrize("varied", [False, True])
def test_a_batch_of_rows_is_placed_as_one_by_one_and_given_back(varied: bool) -> None:
    """Tasks of kinds and amounts of their own, each on the best node of its moment; then all is as before."""
    index, peer = PlacementIndex(), PlacementIndex()
    for number in range(300):
        node = a_node(
            f"n{number}", cpu_nano=number % 7, memory_bytes=5, labels={"disk": "ssd" if number % 2 else "hdd"}
        )
        index.set_node(node)
        peer.set_node(node)
    kinds = [Demand("", cpu_nano=1), Demand("", constraints=("node.labels.disk==ssd",), memory_bytes=2)]
    draw = random.Random(3)
    kind_of = np.array([draw.randrange(2) for _ in range(900)], dtype=np.int32)
    amounts = np.array([[draw.randrange(-1, 4), draw.randrange(3)] for _ in range(900)]) if varied else None
    rows = np.empty(900, dtype=np.int32)
    before = [index._table.row(row) for row in range(300)]
    batch = index.batch(kinds)
    n_placed = batch.place(kind_of, rows, amounts)
    expected = []
    for number, kind in enumerate(kind_of.tolist()):
        demand = kinds[kind]
        if amounts is not None:
            cpu_nano, memory_bytes = amounts[number].tolist()
            demand = Demand("", max(0, cpu_nano), memory_bytes, constraints=demand.constraints)
        expected += [placed.node_id for placed in peer.place(demand, [f"t{number}"]).placed] or [""]
    assert expected == [index._asking.columns.ids[row] if row >= 0 else "" for row in rows.tolist()]
    assert 0 < n_placed == sum(bool(node_id) for node_id in expected) < 900
    batch.give_back(kind_of, rows, amounts)
    assert before == [index._table.row(row) for row in range(300)]


def test_a_batch_of_rows_refuses_what_it_cannot_give() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    with pytest.raises(ValueError, match="max_replicas_per_node 2"):
        index.batch([Demand("", max_replicas_per_node=2)])
    batch = index.batch([Demand("")])
    rows = np.empty(2, dtype=np.int32)
    with pytest.raises(IndexError):
        batch.place(np.array([0, 1], dtype=np.int32), rows)
    with pytest.raises(ValueError):
        batch.place(np.array([0], dtype=np.int32), rows)
    with pytest.raises(ValueError):
        batch.place(np.array([0, 0], dtype=np.int32), rows, np.zeros((2, 1), dtype=np.int64))
