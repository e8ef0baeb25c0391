"""`beeyard force-leave`: have a failed member of the gossip cluster count as one that left."""

from __future__ import annotations

import argparse

from beeyard.cli.gossip_socket import add_socket, ask_once, find_socket
from beeyard.cli.manager_api import ApiError, told

NAME = "force-leave"


def main(arguments: list[str]) -> int:
    """Tell the members; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Have a failed member count as one that left, so that nobody tries to reach it any more. One that is "
        "alive is refused. The node and its tasks are the manager's: docker node rm.",
        allow_abbrev=False,
    )
    parser.add_argument("node", metavar="MEMBER")
    parser.add_argument("--prune", action="store_true", help="forget it at once, instead of a day later")
    add_socket(parser)
    options = parser.parse_args(arguments)
    try:
        ask_once(find_socket(options.socket), {"do": NAME, "node": options.node, "prune": options.prune})
    except ApiError as error:
        return told(NAME, error)
    print("{}" if options.json else f"{options.node} counts as one that left{', and is forgotten' * options.prune}")
    return 0


__all__ = ["main"]
