"""Ids drawn many at a time."""

from __future__ import annotations

import os
import random
from collections import Counter

from beeyard.runtime.identifier import ID_DIGITS, IdPool


def test_pool_draws_ids_as_likely_as_any_others() -> None:
    """Every id has 25 base36 digits, no two are equal over several drawings, and every digit is as frequent as the next."""
    pool = IdPool(random.Random(5))
    ids = [pool.draw() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert {len(text) for text in ids} == {ID_DIGITS}
    counts = Counter("".join(ids))
    assert "".join(sorted(counts)) == "0123456789abcdefghijklmnopqrstuvwxyz"
    # 1,389 of each are expected, with a standard deviation of 37: these are more than five away.
    assert all(1200 < count < 1600 for count in counts.values())


def test_a_forked_child_draws_other_ids_than_its_parent() -> None:
    """Once the pool was cleared, as it is in every child, what comes is new randomness."""
    pool = IdPool(random.SystemRandom())
    first = pool.draw()
    ahead = list(pool._ids)
    pool.clear()
    assert not {pool.draw() for _ in range(100)} & {first, *ahead}


def test_ids_of_the_system_are_not_shared_with_a_fork() -> None:
    """The process's own pool is cleared in a child by itself."""
    from beeyard.runtime import real

    host = real.host()
    host.new_id()
    expected = real._SYSTEM_IDS._ids[-1]
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, host.new_id().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    in_child = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert len(in_child) == ID_DIGITS
    assert in_child != expected == host.new_id()
