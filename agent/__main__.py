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
from beeyard.core.errors import ClusterError
from beeyard.runtime import real
from beeyard.runtime.host import Controller
from beeyard.runtime.real_main import add_log_level, run_daemon, with_scheme

TOKEN_VARIABLE = "BEEYARD_JOIN_TOKEN"

log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, which leave the tasks running; 1 when it cannot start or was refused."""
    options = _parser().parse_args(argv)
    if os.geteuid() != 0:
        print("beeyard agent: needs root, for network namespaces and cgroups", file=sys.stderr)
        return 1
    state_dir = os.path.abspath(options.state_dir)
    closed = "" if options.purge else make_searchable(state_dir)
    if closed:
        print(
            f"beeyard agent: tasks run unprivileged and cannot pass {closed} to their work directories in {state_dir}:"
            f" chmod o+x {closed}, or give another --state-dir",
            file=sys.stderr,
        )
        return 1
    # The node's key is in the state directory: not even a task that runs as root may see it.
    executor = ProcessExecutor(
        f"{state_dir}/process", options.log_dir or f"{state_dir}/log", hidden=("/run/beeyard", state_dir)
    )

    async def run() -> None:
        try:
            if options.purge:
                await purge(executor)
                return
            config = AgentConfig(
                state_dir=state_dir,
                managers=tuple(with_scheme(address, "tcp://") for address in options.manager),
                join_token=options.token or os.environ.get(TOKEN_VARIABLE, ""),
                node_name=options.hostname,
            )
            await daemon.run(real.host(executors=[executor], hostname=options.hostname), config)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await executor.aclose()

    return run_daemon("beeyard agent", options.log_level, run)


def make_searchable(state_dir: str) -> str:
    """Make the state directory; the first directory on the way to it that others cannot pass, "" when all are open."""
    os.makedirs(state_dir, mode=0o711, exist_ok=True)
    path = "/"
    for part in state_dir.split("/"):
        path = os.path.join(path, part)
        if not os.stat(path).st_mode & 0o001:
            return path
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
    parser.add_argument("--hostname", default="", help="name of this node; default: the machine's hostname")
    parser.add_argument("--purge", action="store_true", help="stop every task of this state directory and exit")
    add_log_level(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
