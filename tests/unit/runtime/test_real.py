"""The real machine as a host."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from beeyard.runtime import real
from beeyard.runtime.sim_gate import NoParts
from tests.support.conformance import a_record


async def test_real_host_gives_every_port(tmp_path: Path) -> None:
    """Clock, ids, resources and the store, on this machine."""
    host = real.host(netlink=NoParts().netlink(), hostname="yard1")
    assert host.hostname == "yard1"
    assert host.wall_now_s() == pytest.approx(time.time(), abs=5)
    await host.running()
    cpu_nano, memory_bytes = host.resources()
    assert cpu_nano % 1_000_000_000 == 0
    assert cpu_nano > 0
    assert memory_bytes > 1 << 26
    assert host.platform()[1] == "linux"
    database = await host.open_database(str(tmp_path / "store.db"))
    await database.commit([a_record(1)])
    await database.aclose()


def test_ids_are_swarms_and_differ() -> None:
    """25 base36 digits; a seeded generator repeats, the system's does not."""
    host = real.host(netlink=NoParts().netlink())
    ids = {host.new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(text) == 25 and int(text, 36) >= 0 and text == text.lower() for text in ids)
    seeded = [real.host(netlink=NoParts().netlink(), rng=random.Random(7)).new_id() for _ in range(2)]
    assert seeded[0] == seeded[1]
