"""Whole clusters from seeds, with everything breaking: see `tests/sim/cluster.py`."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.sim.scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def quiet_daemons() -> Iterator[None]:
    """Twenty agents that lose their manager have a lot to say."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("seed", range(1, 21))
def test_cluster_keeps_its_promises_whatever_breaks(seed: int) -> None:
    """No address twice, no machine over its room, states only grow, nothing acknowledged lost, nothing left at rest."""
    SCENARIOS["cluster"].run(seed)
