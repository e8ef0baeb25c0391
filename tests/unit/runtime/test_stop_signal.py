"""Stop signals are read as Docker reads them."""

from __future__ import annotations

import pytest

from beeyard.core.errors import ExecutorError
from beeyard.runtime.stop_signal import signal_number


@pytest.mark.parametrize(
    ("name", "number"), [("SIGTERM", 15), ("TERM", 15), ("sigusr1", 10), ("9", 9), ("", 15), (" INT ", 2), ("64", 64)]
)
def test_signal_is_found_by_name_or_number(name: str, number: int) -> None:
    """With and without SIG, in any case, by number, and SIGTERM when none is given."""
    assert number == signal_number(name)


@pytest.mark.parametrize("name", ["SIGNONSENSE", "0", "65", "-1", "SIG", "SIGSTOP", "19"])
def test_signal_that_stops_nothing_is_refused(name: str) -> None:
    """A name that does not exist, or a signal that only pauses, is an error that names it."""
    with pytest.raises(ExecutorError, match=r"stop signal|SIGSTOP"):
        signal_number(name)
