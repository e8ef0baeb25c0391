"""The one place that touches trio's private switch for a reproducible order of tasks.

trio runs what is ready in a random order. Seeding that order makes a simulation repeat exactly, and gives each seed another
interleaving. `tests/sim/test_determinism.py` notices when a new version of trio moves these names.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

import trio
import trio._core._run as scheduler
from trio.testing import MockClock

T = TypeVar("T")


@contextlib.contextmanager
def order_drawn_from(seed: int) -> Iterator[None]:
    """Inside, trio's order of tasks is drawn from a seed."""
    private = cast("Any", scheduler)
    generator: random.Random = private._r
    allowed, state = private._ALLOW_DETERMINISTIC_SCHEDULING, generator.getstate()
    private._ALLOW_DETERMINISTIC_SCHEDULING = True
    generator.seed(seed)
    try:
        yield
    finally:
        private._ALLOW_DETERMINISTIC_SCHEDULING = allowed
        generator.setstate(state)


def run(seed: int, function: Callable[[], Awaitable[T]]) -> T:
    """Run a function to its end on a mock clock, with trio's order of tasks drawn from a seed."""
    with order_drawn_from(seed):
        return trio.run(function, clock=MockClock(autojump_threshold=0))
