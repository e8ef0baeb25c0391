"""`beeyard event`: tell all members of the gossip cluster something."""

from __future__ import annotations

import argparse

from beeyard.cli.gossip_socket import add_socket, ask_once, encoded, find_socket
from beeyard.cli.manager_api import ApiError, told

NAME = "event"


def main(arguments: list[str]) -> int:
    """Send one event; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Send a user event to all members of the gossip cluster. Name and payload together have up to 512 bytes. "
        "It reaches everybody within a second; nobody confirms it.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("payload", nargs="?", default="", metavar="PAYLOAD")
    parser.add_argument(
        "--coalesce",
        choices=("true", "false"),
        default="true",
        help="whether of several events of one name the newest is enough for who handles them; default %(default)s",
    )
    add_socket(parser)
    options = parser.parse_args(arguments)
    request = {
        "do": NAME,
        "name": options.name,
        "payload": encoded(options.payload),
        "coalesce": options.coalesce == "true",
    }
    try:
        ask_once(find_socket(options.socket), request)
    except ApiError as error:
        return told(NAME, error)
    print("{}" if options.json else f"event {options.name} is on its way")
    return 0


__all__ = ["main"]
