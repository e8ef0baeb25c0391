"""`python -m beeyard.manager`: the manager daemon of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from beeyard.manager import daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime import real
from beeyard.runtime.real_main import add_log_level, run_daemon, with_scheme


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the exit code is 1 when it cannot start, with one line that says why."""
    options = _parser().parse_args(argv)
    config = ManagerConfig(
        state_dir=options.state_dir,
        listen=with_scheme(options.listen, "tcp://"),
        api_socket=with_scheme(options.api_socket, "unix://"),
        api_group=options.api_group,
        advertise=with_scheme(options.advertise, "tcp://") if options.advertise else "",
        node_name=options.hostname,
    )
    host = real.host(hostname=options.hostname)
    return run_daemon("beeyard manager", options.log_level, lambda: daemon.run(host, config))


def _parser() -> argparse.ArgumentParser:
    defaults = ManagerConfig()
    parser = argparse.ArgumentParser(prog="beeyard manager", description="The manager of a Beeyard cluster.")
    parser.add_argument("--state-dir", default=defaults.state_dir, help="its database; default %(default)s")
    parser.add_argument("--listen", default=defaults.listen, help="address for agents; default %(default)s")
    parser.add_argument("--api-socket", default=defaults.api_socket, help="Docker API; default %(default)s")
    parser.add_argument("--api-group", default=defaults.api_group, help="who may use it; default %(default)s")
    parser.add_argument("--advertise", default="", help="HOST:PORT that agents are told; default: what is listened on")
    parser.add_argument("--hostname", default="", help="name of the node on this machine; default: its hostname")
    add_log_level(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
