"""`beeyard keys`: list and change the keys with which members of the gossip cluster encrypt, on all of them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from beeyard.cli.gossip_socket import add_socket, ask_once, find_socket
from beeyard.cli.manager_api import ApiError, told
from beeyard.cli.table import columns

NAME = "keys"
_ACTIONS = ("list", "install", "use", "remove")
_DONE = {"install": "installed", "use": "used to encrypt", "remove": "removed"}
# What members say that have no keys, in Serf's words.
NOT_ENCRYPTED = "encryption not enabled"
# Members are asked, each answers by itself, and the slow are waited for.
TIMEOUT_S = 120.0


def main(arguments: list[str]) -> int:
    """List or change; the exit code of the process: 1 when not every member did as asked, or answered."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Keys of the gossip cluster. To rotate: --install the new key, --use it, --remove the old one, each once "
        "the one before has succeeded on every member. A key is 16, 24 or 32 bytes in base64, such as "
        "`head -c 32 /dev/urandom | base64` makes.",
        allow_abbrev=False,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--list", action="store_true", help="show which members know which keys, and encrypt with which"
    )
    action.add_argument("--install", metavar="KEY", help="have all members know a key")
    action.add_argument("--use", metavar="KEY", help="have all members encrypt with a key that they know")
    action.add_argument("--remove", metavar="KEY", help="have all members forget a key that nobody encrypts with")
    add_socket(parser)
    options = parser.parse_args(arguments)
    what = next(name for name in _ACTIONS if getattr(options, name) not in (None, False))
    request = {"do": NAME, "action": what, "key": "" if what == "list" else getattr(options, what)}
    try:
        answer = ask_once(find_socket(options.socket), request, timeout_s=TIMEOUT_S)
    except ApiError as error:
        return told(NAME, error)
    print(json.dumps(answer, indent=2) if options.json else "\n".join(lines(what, answer)))
    # That nobody has a key is an answer, and a whole one when nobody is silent.
    is_whole = what == "list" and is_plain(answer) and answer["answered"] == answer["members"]
    return 0 if is_whole or answer["good"] == answer["members"] else 1


def is_plain(answer: dict[str, Any]) -> bool:
    """Whether gossip is not encrypted: nobody who answered has a key."""
    said = answer["messages"].values()
    return bool(said) and len(said) == answer["answered"] and all(NOT_ENCRYPTED in message for message in said)


def lines(what: str, answer: dict[str, Any]) -> list[str]:
    """What came of it, for a person."""
    n_members = answer["members"]
    shown = []
    if what == "list" and answer["keys"]:
        rows = [("KEY", "KNOWN BY", "ENCRYPTS FOR")]
        for key, n_known in sorted(answer["keys"].items(), key=lambda item: (-item[1], item[0])):
            rows.append((key, f"{n_known} of {n_members}", f"{answer['primary_keys'].get(key, 0)} of {n_members}"))
        shown += columns(rows)
    elif what != "list":
        shown.append(f"{_DONE[what]} on {answer['good']} of {n_members} members")
    silent = n_members - answer["answered"]
    if silent > 0:
        shown.append(f"{silent} {'member has' if silent == 1 else 'members have'} not answered: see `beeyard members`")
    if what == "list" and is_plain(answer):
        who = f"none of the {n_members} members has a key" if silent <= 0 else "nobody who answered has a key"
        where = "to begin, have the setting discovery.keyring_file of each daemon name a file with the first key"
        shown.append(f"gossip is not encrypted: {who} ({NOT_ENCRYPTED}); {where}")
        return shown
    shown += [f"{member}: {message}" for member, message in answer["messages"].items()]
    return shown


__all__ = ["lines", "main"]
