"""`beeyard list`: the nodes that are published at a discovery URL, or those that this host's manager knows from its own."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from beeyard.cli.manager_api import ApiError, call, default_socket, told
from beeyard.core.errors import ClusterError
from beeyard.discovery.published.backend import OTHERS
from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.url import DiscoveryUrl, parse_url
from beeyard.runtime.real_files import RealFiles
from beeyard.runtime.real_lists import RealListServers

NAME = "list"
# For one answer of a server: a person waits.
PATIENCE_S = 15.0


class _Ports:
    """As much of a host as reading lists takes."""

    def __init__(self) -> None:
        self.files = RealFiles()
        self.lists = RealListServers()
        self.wall_now_s = time.time


def main(arguments: list[str]) -> int:
    """Print the nodes, one a line; the exit code of the process."""
    options = _parser().parse_args(arguments)
    try:
        if options.url is None:
            found = call(options.socket, "GET", "/beeyard/v1/discovery")
            if found["Error"]:
                told(NAME, ApiError(f"the manager knows nothing new: {found['Error']}"))
            lists: Mapping[str, Sequence[str]] = {given["Owner"]: tuple(given["Nodes"]) for given in found["Lists"]}
        else:
            url = parse_url(options.url, options.discovery_opt, directory=os.getcwd())
            lists = trio.run(_read, url)
    except (ApiError, ClusterError) as error:
        return told(NAME, error)
    for line in shown(lists, as_json=options.json, by_manager=options.by_manager):
        print(line)
    return 0


async def _read(url: DiscoveryUrl) -> Mapping[str, Sequence[str]]:
    backend = open_backend(url, _Ports())
    try:
        with trio.move_on_after(PATIENCE_S):
            return await backend.read()
        raise ApiError(f"{url.shown} has not answered for {PATIENCE_S:.0f} s")
    finally:
        with trio.move_on_after(1.0, shield=True):
            await backend.aclose()


def shown(lists: Mapping[str, Sequence[str]], *, as_json: bool, by_manager: bool) -> list[str]:
    """Lines for a person, or for a program."""
    nodes = sorted({entry for entries in lists.values() for entry in entries})
    if as_json:
        answer: dict[str, Any] = {
            "nodes": nodes,
            "lists": {owner: sorted(entries) for owner, entries in sorted(lists.items()) if owner != OTHERS},
            "others": sorted(lists.get(OTHERS, ())),
        }
        return [json.dumps(answer, indent=2)]
    if not by_manager:
        return nodes
    rows = [(owner or "-", entry) for owner, entries in sorted(lists.items()) for entry in sorted(entries)]
    width = max(len(owner) for owner, _ in [("MANAGER", ""), *rows])
    return [f"{owner.ljust(width)}  {entry}".rstrip() for owner, entry in [("MANAGER", "NODE"), *rows]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="The nodes that managers, and agents of classic Swarm, have published at a discovery URL: etcd://, "
        "zk://, consul://, file://, nodes:// or token://. docs/discovery-urls.md explains them.",
        allow_abbrev=False,
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="when it is not given, what this host's manager knows")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--by-manager", action="store_true", help="say which manager has published each")
    parser.add_argument(
        "--discovery-opt",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="kv.path, kv.cacertfile, kv.certfile or kv.keyfile",
    )
    parser.add_argument(
        "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
    )
    return parser


__all__ = ["main", "shown"]
