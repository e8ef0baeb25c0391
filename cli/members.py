"""`beeyard members`: who gossips, as the daemon of this host knows it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from beeyard.cli.gossip_socket import add_socket, ask_once, find_socket
from beeyard.cli.manager_api import ApiError, told
from beeyard.cli.table import columns

NAME = "members"
# Characters that are shown of the values of these tags.
SHORT = {"cluster": 8, "node": 12}


def main(arguments: list[str]) -> int:
    """List; the exit code of the process: 1 also when nobody passes the filters."""
    options = _parser().parse_args(arguments)
    try:
        wanted = selection(options)
        answer = ask_once(find_socket(options.socket), {"do": "members"})
    except ApiError as error:
        return told(NAME, error)
    answer["members"] = [member for member in answer["members"] if wanted(member)]
    print(json.dumps(answer, indent=2) if options.json else "\n".join(listing(answer, detailed=options.detailed)))
    return 0 if answer["members"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="The members of the gossip cluster as the daemon of this host knows them. Expressions are Python's and "
        "must match the whole value.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--status", metavar="EXPRESSION", help="alive, leaving, left, failed, or several: 'left|failed'"
    )
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=EXPRESSION", help="several must all match")
    parser.add_argument("--name", metavar="EXPRESSION")
    parser.add_argument("--detailed", action="store_true", help="show the versions of both protocols, and tags whole")
    add_socket(parser)
    return parser


def selection(options: argparse.Namespace) -> Callable[[dict[str, Any]], bool]:
    """Tells which members are to be shown.

    Raises:
        ApiError: an expression cannot be read.
    """
    status, name = _pattern("--status", options.status), _pattern("--name", options.name)
    tags = []
    for text in options.tag:
        key, equals, expression = text.partition("=")
        if not equals or not key:
            raise ApiError(f"--tag {text} is not KEY=EXPRESSION, such as dc=ams or role=agent|manager")
        tags.append((key, _pattern("--tag", expression)))

    def wanted(member: dict[str, Any]) -> bool:
        return bool(
            status.fullmatch(member["status"])
            and name.fullmatch(member["name"])
            and all(pattern.fullmatch(member["tags"].get(key, "")) for key, pattern in tags)
        )

    return wanted


def _pattern(flag: str, text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(".*" if text is None else text, re.DOTALL)
    except re.error as error:
        raise ApiError(f"{flag} {text} is no regular expression: {error}") from error


def listing(answer: dict[str, Any], *, detailed: bool) -> list[str]:
    """Lines for a person."""
    rows: list[Sequence[str]] = [("NAME", "ADDRESS", "STATUS", "SINCE", *(("PROTOCOL",) if detailed else ()), "TAGS")]
    for member in answer["members"]:
        status = "alive, suspected" if member["suspected"] else member["status"]
        tags = ",".join(f"{key}={_short(key, value, detailed)}" for key, value in member["tags"].items())
        version = (_version(member),) if detailed else ()
        rows.append((member["name"], member["addr"], status, age(member["age_s"]), *version, tags or "-"))
    lines = columns(rows)
    if answer["health"]:
        lines += ["", f"{answer['me']}, which was asked, is in trouble itself (health {answer['health']} of 0 to 7): "]
        lines[-1] += "it may see others late"
    return lines


def _short(key: str, value: str, detailed: bool) -> str:
    """A tag's value; digests and ids by their beginning, which is enough to tell them apart."""
    return value if detailed or len(value) <= SHORT.get(key, len(value)) else f"{value[: SHORT[key]]}…"


def _version(member: dict[str, Any]) -> str:
    shown = [f"{v['version']} ({v['min']}-{v['max']})" for v in (member["protocol"], member["swim_protocol"])]
    return " / ".join(shown)


def age(seconds: float) -> str:
    """A time that has passed, to two places: "45s", "3m12s", "5h40m", "12d3h"."""
    whole = int(seconds)
    for unit, sub, size, sub_size in (("d", "h", 86400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // sub_size}{sub}"
    return f"{whole}s"


__all__ = ["age", "listing", "main", "selection"]
