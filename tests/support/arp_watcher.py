"""Starts and stops `tests.support.arp_watch` on the outside of a LAN."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from deploy.lan import Lan


@contextlib.contextmanager
def arp_watcher(lan: Lan, *ranges: str, answer_wait_s: float = 0.005) -> Iterator[dict[str, Any]]:
    """Ask for every address of the ranges as long as the block runs; the yielded dict is filled at its end."""
    result: dict[str, Any] = {}
    own = f"{lan.subnet[1]}/{lan.subnet.prefixlen}"
    process = subprocess.Popen(
        [*Lan.enter(lan.outside), sys.executable, "-m", "tests.support.arp_watch", "lan0", own, *ranges],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ARP_ANSWER_WAIT_S": str(answer_wait_s)},
    )
    try:
        yield result
    finally:
        output, _ = process.communicate(timeout=30)
        result.update(json.loads(output or "{}"))
