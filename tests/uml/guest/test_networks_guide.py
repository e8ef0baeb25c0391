"""The examples of `docs/networks.md` that need VLANs and ipvlan, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.worked_example import Reader

# A kernel of one processor that shares two with everybody else.
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """The cluster of `./yard up --nodes 2`: in a kernel of its own it may have that name."""
    cluster = YardCluster()
    try:
        cluster.up(2)
        yield cluster
    finally:
        cluster.down()


@pytest.mark.parametrize(
    "example", ["Example 2: one subnet on two VLANs", "Example 3: a routed network and fixed addresses"]
)
def test_example_runs_as_written(cluster: YardCluster, tmp_path: Path, example: str) -> None:
    """Every command works, and prints what the page says."""
    Reader(cluster, tmp_path).follow(example, within_s=WITHIN_S)
