"""`python -m beeyard.agent`: the agent daemon of this machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import structlog
import trio

from beeyard.agent import daemon
from beeyard.agent.config import AgentConfig
from beeyard.agent.executors.process.executor import ProcessExecutor
from beeyard.agent.executors.process.logs import KEEP, Keep
from beeyard.agent.identity import parse_token
from beeyard.core.errors import ClusterError, InvalidSpec
from beeyard.runtime import real
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Controller
from beeyard.runtime.real_lock import sole_use
from beeyard.runtime.real_main import add_log_level, run_daemon, with_scheme

TOKEN_VARIABLE = "BEEYARD_JOIN_TOKEN"

log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, which leave the tasks running; 1 when it cannot start or was refused."""
    options = _parser().parse_args(argv)
    options.token = options.token or os.environ.get(TOKEN_VARIABLE, "")
    fault = check(options) or ("needs root, for network namespaces and cgroups" if os.geteuid() != 0 else "")
    if fault:
        print(f"beeyard agent: {fault}", file=sys.stderr)
        return 1
    state_dir = os.path.abspath(options.state_dir)
    # The node's key is in the state directory: not even a task that runs as root may see it.
    executor = ProcessExecutor(
        f"{state_dir}/process",
        os.path.abspath(options.log_dir or f"{state_dir}/log"),
        hidden=("/run/beeyard", state_dir),
        keep=Keep(options.logs_kept, options.log_mib_kept << 20),
    )

    config = AgentConfig(
        state_dir=state_dir,
        managers=tuple(with_scheme(address, "tcp://") for address in options.manager),
        join_token=options.token,
        node_name=options.hostname,
    )

    async def run() -> None:
        # Two agents on one directory would take each other's sessions, and a purge the tasks of the agent beside it.
        with sole_use(state_dir, "agent"):
            try:
                if options.purge:
                    await purge(executor)
                else:
                    await daemon.run(real.host(executors=[executor], hostname=options.hostname), config)
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                    await executor.aclose()

    return run_daemon("beeyard agent", options.log_level, run)


def check(options: argparse.Namespace) -> str:
    """What is wrong with the flags, "" when nothing is: found out before anything is touched, and named as it was given."""
    if options.purge:
        return ""
    if not options.manager:
        return "--manager HOST:PORT is missing: give the address of at least one manager"
    for address in options.manager:
        try:
            parsed = parse_address(with_scheme(address, "tcp://"))
        except InvalidSpec:
            parsed = None
        if not isinstance(parsed, TcpAddress) or parsed.port == 0:
            return f"--manager {address!r} is not HOST:PORT; an IPv6 host goes in brackets"
    try:
        if options.token:
            parse_token(options.token)
    except InvalidSpec as error:
        return f"--token (or ${TOKEN_VARIABLE}) is no join token: {error.reason}"
    return ""


async def purge(executor: ProcessExecutor) -> None:
    """Stop every task of this state directory, all at once, and remove what they left."""

    async def end(controller: Controller) -> None:
        try:
            await controller.stop(links_first=True)
            await controller.remove()
        except ClusterError as error:
            log.error("a task is left behind", task=controller.task_id, reason=str(error))

    async with trio.open_nursery() as nursery:
        for controller in await executor.recover():
            nursery.start_soon(end, controller)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="beeyard agent", description="The agent of one host of a Beeyard cluster.")
    parser.add_argument(
        "--manager", action="append", default=[], metavar="HOST:PORT", help="a manager to join; may be repeated"
    )
    parser.add_argument("--token", default="", help=f"join token; default: ${TOKEN_VARIABLE}; needed once")
    parser.add_argument("--state-dir", default="/var/lib/beeyard/agent", help="default %(default)s")
    parser.add_argument("--log-dir", default="", help="output of tasks; default: log/ in the state directory")
    parser.add_argument(
        "--logs-kept", type=_count, default=KEEP.n_tasks, metavar="N", help="of removed tasks; default %(default)s"
    )
    parser.add_argument(
        "--log-mib-kept", type=_count, default=KEEP.n_bytes >> 20, metavar="MIB", help="of those; default %(default)s"
    )
    parser.add_argument("--hostname", default="", help="name of this node; default: the machine's hostname")
    parser.add_argument("--purge", action="store_true", help="stop every task of this state directory and exit")
    add_log_level(parser)
    return parser


def _count(text: str) -> int:
    """A number that is not negative."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 0 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
