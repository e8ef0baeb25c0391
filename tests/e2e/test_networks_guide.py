"""The example of `docs/networks.md` that every kernel with macvlan can run, as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.worked_example import Reader

pytestmark = pytest.mark.netns


def test_example_runs_as_written(cluster: YardCluster, tmp_path: Path) -> None:
    """Every command works, and prints what the page says."""
    Reader(cluster, tmp_path).follow("Example 1: two racks on one LAN", within_s=30)
