"""Strangers and their turns, without sockets."""

from __future__ import annotations

import pytest
import trio

from beeyard.runtime import real_greeting
from beeyard.runtime.real_greeting import Strangers, Turns


class Passes(trio.abc.Instrument):
    """Counts the passes of trio's loop."""

    def __init__(self) -> None:
        self.n = 0

    def before_io_wait(self, timeout: float) -> None:
        self.n += 1


async def test_who_is_further_goes_first_and_each_has_a_pass_of_its_own() -> None:
    """Among equals who came first; what others have to do happens between two turns."""
    turns, passes = Turns(), Passes()
    came: list[tuple[int, int]] = []
    went: list[tuple[int, int]] = []
    at: list[int] = []

    async def step(name: int, n_steps_done: int) -> None:
        came.append((name, n_steps_done))
        await turns.wait(n_steps_done)
        went.append((name, n_steps_done))
        at.append(passes.n)

    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as nursery:
        for name in range(9):
            nursery.start_soon(step, name, name % 3)
    trio.lowlevel.remove_instrument(passes)
    assert went[0] == came[0], "nobody else was there yet"
    assert went[1:] == sorted(came[1:], key=lambda item: -item[1])
    assert at == list(range(at[0], at[0] + 9))


async def test_a_cancelled_turn_goes_on_to_the_next() -> None:
    """Whether it was waited for or just given."""
    turns, happened = Turns(), []

    async def step(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await turns.wait(0)
            happened.append(name)

    scopes = {name: trio.CancelScope() for name in "abcd"}
    async with trio.open_nursery() as nursery:
        for name, scope in scopes.items():
            nursery.start_soon(step, name, scope)
        scopes["a"].cancel()
        scopes["c"].cancel()
    assert sorted(happened) == ["b", "d"]
    with trio.fail_after(1):
        await turns.wait(0)


def test_strangers_are_counted_by_address_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 host may use its whole /64, and an IPv4 one may come in IPv6's clothes."""
    monkeypatch.setattr(real_greeting, "STRANGERS_PER_ADDRESS_MAX", 2)
    monkeypatch.setattr(real_greeting, "STRANGERS_MAX", 5)
    strangers = Strangers()
    admitted = ["10.0.0.1", "::ffff:10.0.0.1", "fd00:1::1", "fd00:1::2%eth0"]
    assert [strangers.admit(address) for address in admitted] == [""] * 4
    assert strangers.admit("10.0.0.1") == "more than 2 connections of 10.0.0.1 without a TLS handshake"
    assert strangers.admit("fd00:1::3") == "more than 2 connections of fd00:1::/64 without a TLS handshake"
    assert strangers.admit("a peer that is gone") == ""
    assert strangers.admit("10.0.0.2") == "more than 5 connections without a TLS handshake"
    strangers.leave("10.0.0.1")
    assert strangers.admit("10.0.0.2") == ""
