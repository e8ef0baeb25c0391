"""`beeyard COMMAND ...`, also as `python -m beeyard`.

Each command's module is imported when that command runs: an agent does not load the manager, nor a tool either of them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable

from beeyard import __version__

# Exit code of a command whose output nobody reads to its end: as if SIGPIPE had ended it.
ENOUGH = 128 + 13

# Command: the module whose `main(arguments)` it is, and what it does.
COMMANDS = {
    "manage": ("beeyard.manager.command", "run the manager of a cluster on this host"),
    "join": ("beeyard.agent.command", "run the agent of this host: join a cluster and run its tasks"),
    "pool": ("beeyard.cli.pool", "list pools of addresses, change them in place, take addresses back"),
    "explain": ("beeyard.cli.explain", "why a service's tasks have no place, and what would give them one"),
    "whatif": ("beeyard.cli.what_if", "what would happen if a service were created, or nodes lost or drained"),
    "list": ("beeyard.cli.discovery_list", "nodes that managers have published at a discovery URL"),
    "discovery-token": ("beeyard.cli.discovery_token", "let managers publish at this one: a discovery URL, token://"),
    "members": ("beeyard.cli.members", "who is in the gossip cluster, with tags, address and status"),
    "event": ("beeyard.cli.event", "tell all members of the gossip cluster something"),
    "query": ("beeyard.cli.query", "ask members of the gossip cluster, and show what they answer"),
    "keys": ("beeyard.cli.keys", "list and change the keys with which members encrypt"),
    "rtt": ("beeyard.cli.rtt", "the estimated round-trip time between two members"),
    "force-leave": ("beeyard.cli.force_leave", "have a failed member count as one that left"),
    "gossip-metrics": ("beeyard.cli.gossip_metrics", "figures of this host's gossip for Prometheus"),
    "replay": ("beeyard.cli.replay", "run a manager's log of decisions again and compare"),
    "client-certificate": ("beeyard.cli.client_certificate", "let a docker command on another machine use the API"),
    "launch": ("beeyard.agent.executors.process.launcher", "start tasks for the agent (beeyard-launcher@.service)"),
}


def usage() -> str:
    """What the command offers."""
    lines = [f"  {name:20} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: beeyard COMMAND [ARGUMENTS]",
            "",
            *lines,
            f"  {'version':20} print the version",
            "",
            "`beeyard COMMAND --help` explains one. Services, networks and nodes are the docker command's:",
            "DOCKER_HOST=unix:///run/beeyard/docker.sock docker service ls",
        ]
    )


def _run(command: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        code = command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has had enough, as `head`: no error. What is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENOUGH
    return code


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code of the process."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["help"]
    if name in COMMANDS:
        return _run(importlib.import_module(COMMANDS[name][0]).main, arguments)
    if name in ("version", "--version"):
        print(f"beeyard {__version__}")
        return 0
    if name in ("help", "-h", "--help"):
        print(usage())
        return 0
    print(usage(), file=sys.stderr)
    print(f"\nbeeyard: there is no command {name!r}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
