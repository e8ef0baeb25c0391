"""`beeyard rtt`: how long the way between two members is, as their coordinates estimate it."""

from __future__ import annotations

import argparse
import json

from beeyard.cli.gossip_socket import add_socket, ask_once, find_socket
from beeyard.cli.manager_api import ApiError, told

NAME = "rtt"


def main(arguments: list[str]) -> int:
    """Estimate; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="The estimated round-trip time between two members, from the coordinates that they learn by probing each "
        "other. 10 to 30 % off is usual, and below a millisecond it says little.",
        allow_abbrev=False,
    )
    parser.add_argument("one", metavar="MEMBER", help="name of a member, which is its node's")
    parser.add_argument(
        "other", nargs="?", default="", metavar="MEMBER", help="default: the member that is asked, on this host"
    )
    add_socket(parser)
    options = parser.parse_args(arguments)
    try:
        answer = ask_once(find_socket(options.socket), {"do": NAME, "one": options.one, "other": options.other})
    except ApiError as error:
        return told(NAME, error)
    shown = f"{answer['one']} <-> {answer['other']}: {answer['rtt_s'] * 1e3:.3f} ms (estimated)"
    print(json.dumps(answer, indent=2) if options.json else shown)
    return 0


__all__ = ["main"]
