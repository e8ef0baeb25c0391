"""`python -m beeyard.manager`: the manager daemon of this machine."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

import structlog
import trio

from beeyard.core.errors import ClusterError
from beeyard.manager import daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime import real


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the exit code is 1 when it cannot start, with one line that says why."""
    options = _parser().parse_args(argv)
    level = logging.getLevelNamesMapping()[options.log_level.upper()]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    config = ManagerConfig(
        state_dir=options.state_dir,
        listen=_with_scheme(options.listen, "tcp://"),
        api_socket=_with_scheme(options.api_socket, "unix://"),
        api_group=options.api_group,
        advertise=_with_scheme(options.advertise, "tcp://") if options.advertise else "",
        node_name=options.hostname,
    )
    exit_code = 0
    try:
        trio.run(_run, config, options.hostname)
    except* ClusterError as group:
        for error in _leaves(group):
            print(f"beeyard manager: {error}", file=sys.stderr)
        exit_code = 1
    return exit_code


async def _run(config: ManagerConfig, hostname: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
        await daemon.run(real.host(hostname=hostname), config)


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def _leaves(group: BaseExceptionGroup[ClusterError]) -> list[ClusterError]:
    leaves: list[ClusterError] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _with_scheme(address: str, scheme: str) -> str:
    return address if "://" in address else f"{scheme}{address}"


def _parser() -> argparse.ArgumentParser:
    defaults = ManagerConfig()
    parser = argparse.ArgumentParser(prog="beeyard manager", description="The manager of a Beeyard cluster.")
    parser.add_argument("--state-dir", default=defaults.state_dir, help="its database; default %(default)s")
    parser.add_argument("--listen", default=defaults.listen, help="address for agents; default %(default)s")
    parser.add_argument("--api-socket", default=defaults.api_socket, help="Docker API; default %(default)s")
    parser.add_argument("--api-group", default=defaults.api_group, help="who may use it; default %(default)s")
    parser.add_argument("--advertise", default="", help="HOST:PORT that agents are told; default: what is listened on")
    parser.add_argument("--hostname", default="", help="name of the node on this machine; default: its hostname")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
