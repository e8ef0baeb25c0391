"""Follows discovery URLs and writes down what is there: `python -m tests.support.list_watcher FILE NAME=URL ...`."""

from __future__ import annotations

import json
import os
import random
import sys

import trio

from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.union import Union
from beeyard.discovery.published.url import parse_url
from beeyard.runtime import real


async def main(path: str, *places: str) -> None:
    """Until killed. The file has the lists of every name, by owner, and whether they can be read."""
    found: dict[str, Union] = {}
    authority = os.environ.get("AUTHORITY", "")

    def write() -> None:
        said = {name: union.lists for name, union in found.items() if union.is_known and not union.error}
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(f"{path}.new", path)

    async def watch(union: Union) -> None:
        while True:
            write()
            await union.changed()

    async with trio.open_nursery() as nursery:
        for place in places:
            name, _, text = place.partition("=")
            url = parse_url(text, {"kv.cacertfile": authority} if text.startswith("token") else ())
            backend = open_backend(url, real.host(), ttl_s=4.0)
            found[name] = Union(backend, name, random.Random(name), grace_s=1.0)
            nursery.start_soon(found[name].run)
            nursery.start_soon(watch, found[name])


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
