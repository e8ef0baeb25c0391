"""What holds for every test."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.sim.determinism import order_drawn_from

# Another number tries another interleaving of every test; each must pass with all of them.
ORDER = os.environ.get("BEEYARD_TEST_ORDER", "0")

# How long an example takes says more of the machine than of the code: the first text alone costs the table of Unicode.
settings.register_profile("beeyard", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beeyard")


@pytest.fixture(autouse=True)
def order_of_tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    """trio runs the tasks of one test in the same order each time; a failure can be repeated."""
    with order_drawn_from(zlib.crc32(f"{ORDER}/{request.node.nodeid}".encode())):
        yield
