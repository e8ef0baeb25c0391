"""What a token service knows."""

from __future__ import annotations

import math
import random

import pytest

from beeyard.core.errors import InvalidSpec, NotFound
from beeyard.discovery.published.backend import OTHERS
from beeyard.discovery.published.registry import Registry


def a_registry(seed: int = 1, key: bytes = b"k" * 32, epoch: int = 1000) -> Registry:
    return Registry(key, random.Random(seed), epoch=epoch, complete_at_s=10.0)


def test_tokens_are_known_again_after_a_restart_and_by_nobody_else() -> None:
    """They need not be stored."""
    token = a_registry().new_token()
    assert len(token) == 32
    assert a_registry(seed=2).lists(0.0, token) == (1000, {})
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), "", "x" * 32, token.upper() + " "):
        with pytest.raises(NotFound, match="token"):
            a_registry().lists(0.0, wrong)
    with pytest.raises(NotFound):
        a_registry(key=b"other").put(0.0, token, "m1", ["a:1"], 30.0)


def test_lists_count_for_their_time_and_each_change_has_a_version() -> None:
    """Renewing changes nothing; running out does."""
    registry = a_registry()
    token, other = registry.new_token(), registry.new_token()
    registry.put(0.0, token, "m1", ["b:2", "a:1", "a:1"], 30.0)
    registry.put(0.0, other, "m1", ["z:1"], 30.0)
    assert registry.lists(1.0, token) == (1001, {"m1": ("a:1", "b:2")})
    registry.put(10.0, token, "m1", ["a:1", "b:2"], 30.0)
    registry.add(10.0, token, "c:3", 5.0)
    registry.add(11.0, token, "c:3", 5.0)
    assert registry.lists(12.0, token) == (1002, {"m1": ("a:1", "b:2"), OTHERS: ("c:3",)})
    assert registry.next_end(token) == 16.0
    assert registry.lists(17.0, token) == (1003, {"m1": ("a:1", "b:2")})
    assert registry.lists(41.0, token) == (1004, {})
    assert registry.next_end(token) == math.inf
    assert registry.lists(41.0, other) == (1002, {})


def test_a_list_that_is_taken_away_is_gone_at_once() -> None:
    """Twice does no harm."""
    registry = a_registry()
    token = registry.new_token()
    registry.put(0.0, token, "m1", ["a:1"], 30.0)
    registry.remove(1.0, token, "m1")
    registry.remove(1.0, token, "m1")
    assert registry.lists(1.0, token) == (1002, {})


def test_after_a_restart_it_is_incomplete_for_a_while_but_for_new_tokens() -> None:
    """Nobody takes what is not there yet for what is gone."""
    old = a_registry().new_token()
    registry = a_registry(seed=2)
    assert not registry.is_complete(9.0, old)
    assert registry.is_complete(10.0, old)
    assert registry.is_complete(0.0, registry.new_token())


@pytest.mark.parametrize(
    ("owner", "entries", "ttl_s", "why"),
    [
        ("", [], 30.0, "invalid owner"),
        ("a/b", [], 30.0, "invalid owner"),
        ("m", ["x"], 30.0, "HOST:PORT"),
        ("m", [], 0.5, "0.5 must be from 1 to 86400 seconds"),
        ("m", [], 1e9, "seconds"),
        ("m", ["a:1"] * 100_001, 30.0, "more than 100000"),
    ],
)
def test_what_cannot_be_listed_is_refused(owner: str, entries: list[str], ttl_s: float, why: str) -> None:
    """And nothing is changed."""
    registry = a_registry()
    token = registry.new_token()
    with pytest.raises(InvalidSpec, match=why):
        registry.put(0.0, token, owner, entries, ttl_s)
    assert registry.lists(0.0, token) == (1000, {})


def test_it_keeps_a_thousand_lists_and_no_more() -> None:
    """Whoever has a token cannot fill the memory; those that are there can be renewed."""
    registry = a_registry()
    token = registry.new_token()
    for number in range(1000):
        registry.put(0.0, token, f"m{number}", [], 30.0)
    with pytest.raises(InvalidSpec, match="1000 lists already"):
        registry.put(0.0, token, "more", [], 30.0)
    with pytest.raises(InvalidSpec, match="1000 lists already"):
        registry.add(0.0, registry.new_token(), "a:1", 30.0)
    registry.put(1.0, token, "m7", ["a:1"], 30.0)
