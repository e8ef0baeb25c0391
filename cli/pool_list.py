"""What `beeyard pool list` shows: each pool once, below them the addresses that are put aside and which pools are closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beeyard.cli.table import columns

_COUNTS = ("Total", "Used", "Cooling", "Free")


def listing(networks: Sequence[dict[str, Any]]) -> list[str]:
    """Lines for a person.

    Args:
        networks: as the API shows each of them.
    """
    pools: dict[str, dict[str, Any]] = {}
    for network in networks:
        shown = ((network.get("Status") or {}).get("IPAM") or {}).get("Pools") or {}
        for name, pool in shown.items():
            if not pool.get("Removed"):
                pools.setdefault(name, pool)
    rows = [("POOL", "RANGES", "PARENT", "NODES", *map(str.upper, _COUNTS))]
    for name, pool in sorted(pools.items()):
        counts = [str(pool.get(count, "-")) for count in _COUNTS]
        rows.append((name, ",".join(pool["Ranges"]) or "-", pool["Parent"] or "-", pool["Nodes"] or "all", *counts))
    lines = columns(rows)
    aside = [
        (name, found["Address"], found["MacAddress"], found["FoundBy"], f"{found['Until'][:19]}Z")
        for name, pool in sorted(pools.items())
        for found in pool.get("PutAside", ())
    ]
    if aside:
        lines += ["", *columns([("POOL", "PUT ASIDE", "IN USE BY", "FOUND BY", "UNTIL"), *aside])]
    closed = [pool["Closed"] for pool in pools.values() if pool.get("Closed")]
    return [*lines, *([""] if closed else []), *closed]


__all__ = ["listing"]
