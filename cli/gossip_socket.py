"""Asking the daemon of this host that gossips, through its control socket: a line of JSON goes, lines of JSON come."""

from __future__ import annotations

import argparse
import base64
import glob
import grp
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from beeyard.cli.manager_api import ApiError

# The agent's comes first: where both daemons of a host gossip, both know the same. Not imported from `discovery.settings`,
# which takes as long as all else that a command loads; a test compares.
SOCKETS = ("/run/beeyard-agent/gossip.sock", "/run/beeyard/gossip.sock")
# Those of clusters on one machine, as `./yard up` makes them.
ANY_SOCKET = "/run/beeyard/*/gossip-*.sock"
TIMEOUT_S = 30.0


def add_socket(parser: argparse.ArgumentParser, *, json_too: bool = True) -> None:
    """The options that all commands about gossip have."""
    if json_too:
        parser.add_argument("--json", action="store_true", help="the daemon's answer as it is")
    parser.add_argument(
        "--socket", metavar="PATH", help=f"control socket of the daemon; default {SOCKETS[0]}, then {SOCKETS[1]}"
    )


def find_socket(given: str | None) -> str:
    """Where to ask.

    Raises:
        ApiError: no daemon of this host gossips, or it is not clear which one is meant.
    """
    if given:
        return given.removeprefix("unix://")
    usual = [path for path in SOCKETS if os.path.exists(path)]
    others = sorted(glob.glob(ANY_SOCKET))
    for path in usual:
        if not _abandoned(path):
            return path
    found = [path for path in others if not _abandoned(path)]
    # The daemons of one cluster know the same, whichever is asked.
    firsts = [path for path, before in zip(found, ["", *found], strict=False) if _cluster(path) != _cluster(before)]
    if len(firsts) > 1:
        raise ApiError(f"several clusters on this host gossip: name one with --socket, {' or '.join(firsts)}")
    for path in (*found, *usual, *others):
        return path
    raise ApiError(
        f"no daemon of this host gossips: there is no {' or '.join(SOCKETS)}. Start an agent with `beeyard join self://` or "
        "a manager with `beeyard manage --self-discovery-port 3388`, or name its control socket with --socket"
    )


def ask(path: str, request: dict[str, Any], *, timeout_s: float = TIMEOUT_S) -> Iterator[dict[str, Any]]:
    """The lines of the answer, the one with `done` last.

    Args:
        timeout_s: how long the daemon may say nothing.

    Raises:
        ApiError: it cannot be asked, or says why not.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer: dict[str, Any] = json.loads(line)
                    if "error" in answer:
                        raise ApiError(answer["error"])
                    yield answer
                    if "done" in answer:
                        return
    except PermissionError as error:
        raise ApiError(
            f"may not use {path}: run this as root, or as a member of the socket's group ({_group_of(path)})"
        ) from error
    except ConnectionRefusedError as error:
        raise ApiError(f"nobody listens at {path} any more: the daemon that made it does not run") from error
    except TimeoutError as error:
        raise ApiError(f"the daemon at {path} has said nothing for {timeout_s:g} s") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ApiError(f"cannot ask the daemon at {path}: {reason}; --socket names another one") from error
    except ValueError as error:
        raise ApiError(f"what answers at {path} is no daemon that gossips") from error
    raise ApiError(f"the daemon at {path} hung up in the middle of its answer")


def ask_once(path: str, request: dict[str, Any], *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """What the last line of the answer has. Raises ApiError as `ask` does."""
    *_, last = ask(path, request, timeout_s=timeout_s)
    done: dict[str, Any] = last["done"]
    return done


def encoded(text: str) -> str:
    """An argument of a command line, whatever its bytes are, as it travels."""
    return base64.b64encode(os.fsencode(text)).decode()


def readable(payload: str) -> str:
    """A payload for a person: as text where it is text."""
    data = base64.b64decode(payload)
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _cluster(path: str) -> str:
    return os.path.dirname(path)


def _abandoned(path: str) -> bool:
    """Whether the daemon that made a socket is gone without having removed it."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _group_of(path: str) -> str:
    try:
        return grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        return "root"


__all__ = ["SOCKETS", "add_socket", "ask", "ask_once", "encoded", "find_socket", "readable"]
