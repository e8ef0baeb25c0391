"""What the entry points of both daemons share: logging, signals, and how an error reaches the person who started them."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog
import trio

from beeyard.core.errors import ClusterError

# Objects made, net, before the youngest are looked through for cycles, and rounds before older ones are. Python's own 700
# has a daemon with a thousand sessions look through all it holds several times a second while tasks start.
GC_THRESHOLDS = (20_000, 10, 10)

LOG_LEVELS = ("debug", "info", "warning", "error")


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Give a command the flag `--log-level`."""
    parser.add_argument("--log-level", default="info", choices=LOG_LEVELS, help="default %(default)s")


def run_daemon(name: str, log_level: str, main: Callable[[], Awaitable[None]]) -> int:
    """Run `main` until it returns or SIGTERM or SIGINT comes; the process's exit code.

    An error that was raised on purpose ends in one line on standard error and exit code 1.
    """
    level = logging.getLevelNamesMapping()[log_level.upper()]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,  # else every line, also one that is not written, makes a logger first: 8 µs
    )
    gc.set_threshold(*GC_THRESHOLDS)
    exit_code = 0
    try:
        trio.run(_until_signal, main)
    except* ClusterError as group:
        for error in _leaves(group):
            print(f"{name}: {error}", file=sys.stderr)
        exit_code = 1
    return exit_code


async def _until_signal(main: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        await main()
        nursery.cancel_scope.cancel()


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def _leaves(group: BaseExceptionGroup[ClusterError]) -> list[ClusterError]:
    leaves: list[ClusterError] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def with_scheme(address: str, scheme: str) -> str:
    """An address as people write it, "10.0.0.1:2377", as the ports want it, "tcp://10.0.0.1:2377"."""
    return address if "://" in address else f"{scheme}{address}"


__all__ = ["LOG_LEVELS", "add_log_level", "run_daemon", "with_scheme"]
