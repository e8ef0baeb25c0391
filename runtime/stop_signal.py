"""Signal names as Docker writes them."""

from __future__ import annotations

import signal

from beeyard.core.errors import ExecutorError


def signal_number(name: str) -> int:
    """The number of a stop signal: "SIGTERM", "term", "15" and "" (the default, SIGTERM) are understood.

    Raises:
        ExecutorError: there is no such signal, or it cannot stop anything.
    """
    text = name.strip().upper() or "SIGTERM"
    if text.isdigit() and int(text) in range(1, signal.NSIG):
        number = int(text)
    else:
        known = signal.Signals.__members__.get(text if text.startswith("SIG") else f"SIG{text}")
        if known is None:
            raise ExecutorError("prepare", f"unknown stop signal {name}")
        number = int(known)
    if number == signal.SIGSTOP:
        raise ExecutorError("prepare", "SIGSTOP only pauses a task, it cannot be its stop signal")
    return number


__all__ = ["signal_number"]
