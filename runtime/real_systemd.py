"""What a service manager hears of a daemon: sd_notify(3), without its library. Without a service manager nothing is said."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

import trio

# How often a status line is told where no watchdog asks for more.
STATUS_INTERVAL_S = 10.0


def notify(*lines: str) -> None:
    """Tell the service manager, if there is one; it may be deaf for a moment, which is no reason to stop."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.sendto("\n".join(lines).encode(), address)


def ready(status: str) -> None:
    """The daemon has started, or reloaded."""
    notify("READY=1", f"STATUS={status}")


def reloading() -> None:
    """The daemon reads its configuration anew; `ready` ends that."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def stopping(status: str) -> None:
    """The daemon is about to end."""
    notify("STOPPING=1", f"STATUS={status}")


async def ask_for_time() -> None:
    """Keep the service manager from ending a stop that goes on, until cancelled."""
    while True:
        notify(f"EXTEND_TIMEOUT_USEC={int(3e6 * STATUS_INTERVAL_S)}")
        await trio.sleep(STATUS_INTERVAL_S)


def watchdog_s() -> float:
    """Within how many seconds the service manager wants to hear of this process; 0: never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6


async def report(summary: Callable[[], str]) -> None:
    """Show that the loop runs, and what the daemon does, until cancelled.

    The message comes from the loop itself: one that hangs is not heard, and the service manager starts the daemon again.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    interval_s = watchdog_s() / 3 or STATUS_INTERVAL_S
    while True:
        notify("WATCHDOG=1", f"STATUS={summary()}")
        await trio.sleep(interval_s)


__all__ = ["ask_for_time", "notify", "ready", "reloading", "report", "stopping", "watchdog_s"]
