"""`beeyard query`: ask members of the gossip cluster, and show their answers as they come."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any

from beeyard.cli.gossip_socket import TIMEOUT_S, add_socket, ask, encoded, find_socket, readable
from beeyard.cli.manager_api import ApiError, told

NAME = "query"


def main(arguments: list[str]) -> int:
    """Ask; the exit code of the process."""
    options = _parser().parse_args(arguments)
    try:
        answers = ask(find_socket(options.socket), request(options), timeout_s=TIMEOUT_S + (options.timeout or 0))
        if options.json:
            print(json.dumps(collected(answers), indent=2))
        else:
            for line in lines(answers):
                print(line, flush=True)
    except ApiError as error:
        return told(NAME, error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Ask all members of the gossip cluster, or some, and show what they answer until the time is up. A "
        "member answers what its handler knows: Serf agents have handlers, Beeyard's daemons only say that it has come.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("payload", nargs="?", default="", metavar="PAYLOAD")
    parser.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="ask this member alone; several are fine"
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=EXPRESSION", help="ask members whose tag has such a part"
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="default: by the size of the cluster, 3.2 below ten"
    )
    parser.add_argument("--no-ack", action="store_true", help="do not ask members to say that the question has come")
    parser.add_argument(
        "--relay-factor", type=int, default=0, metavar="N", help="have N others pass each answer on too, against loss"
    )
    add_socket(parser)
    return parser


def request(options: argparse.Namespace) -> dict[str, Any]:
    """What to ask the daemon.

    Raises:
        ApiError: an option cannot be read.
    """
    tags = {}
    for text in options.tag:
        key, equals, expression = text.partition("=")
        if not equals or not key:
            raise ApiError(f"--tag {text} is not KEY=EXPRESSION, such as dc=ams")
        tags[key] = expression
    if options.timeout is not None and not 0 < options.timeout <= 3600:
        raise ApiError(f"--timeout {options.timeout:g} is not between 0 and 3600 seconds")
    if not 0 <= options.relay_factor <= 255:
        raise ApiError(f"--relay-factor {options.relay_factor} is not between 0 and 255")
    return {
        "do": NAME,
        "name": options.name,
        "payload": encoded(options.payload),
        "nodes": options.node,
        "tags": tags,
        "ack": not options.no_ack,
        "relay_factor": options.relay_factor,
        "timeout_s": options.timeout,
    }


def lines(answers: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What comes, for a person."""
    for answer in answers:
        if "ack" in answer:
            yield f"ack from {answer['ack']}"
        elif "from" in answer:
            yield f"response from {answer['from']}: {readable(answer['payload'])}"
        else:
            yield f"{answer['done']['acks']} acks, {answer['done']['responses']} responses"


def collected(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """All that came; payloads as text."""
    acks: list[str] = []
    responses: dict[str, str] = {}
    for answer in answers:
        if "ack" in answer:
            acks.append(answer["ack"])
        elif "from" in answer:
            responses[answer["from"]] = readable(answer["payload"])
    return {"acks": acks, "responses": responses}


__all__ = ["collected", "lines", "main", "request"]
