"""What holds for every test."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest

from tests.sim.determinism import order_drawn_from

# Another number tries another interleaving of every test; each must pass with all of them.
ORDER = os.environ.get("BEEYARD_TEST_ORDER", "0")


@pytest.fixture(autouse=True)
def order_of_tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    """trio runs the tasks of one test in the same order each time; a failure can be repeated."""
    with order_drawn_from(zlib.crc32(f"{ORDER}/{request.node.nodeid}".encode())):
        yield
