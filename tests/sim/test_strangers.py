"""Strangers answer as machines do, and an address that comes up against their word is found."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from beeyard.netdrivers import probe
from beeyard.runtime.sim import SimWorld
from tests.sim.lan import Lan
from tests.sim.strangers import Strangers
from tests.sim.test_lan import a_world, bring_up

ADDRESS = "10.77.0.64"


async def ask(world: SimWorld, machine: str, address: str) -> list[str]:
    """As an agent asks; gives the MAC addresses of who answered."""
    found = await probe.conflicts(world.host(machine).netlink, [("eth0", address)], 0.1)
    return [conflict.mac for conflict, _ in found]


def watched(world: SimWorld) -> Strangers:
    """Strangers, and the LAN followed for what comes up."""
    strangers = Strangers(world)
    strangers.watch()
    Lan(world, strangers.check_came_up).watch()
    return strangers


@pytest.mark.parametrize("address", [ADDRESS, "fd77::40"])
async def test_a_stranger_answers_while_it_is_there(autojump_clock: MockClock, address: str) -> None:
    """On every machine, in both families."""
    async with a_world() as world:
        strangers = watched(world)
        mac = strangers.arrive(address)
        assert [await ask(world, name, address) for name in ("a1", "a2")] == [[mac], [mac]]
        strangers.leave(address)
        assert await ask(world, "a1", address) == []


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ((), "came up on a1 before anybody was asked"),
        (("arrive", "ask"), "came up on a1 although 06:00:00:00:00:01 had answered"),
        (("ask on a2",), "came up on a1 before anybody was asked"),
        (("ask", "arrive"), ""),  # its own fault: it came to where a task is about to be
        (("arrive", "leave", "ask"), ""),
    ],
)
async def test_an_address_comes_up_only_after_a_question_that_nobody_answered(
    autojump_clock: MockClock, before: tuple[str, ...], sentence: str
) -> None:
    """The last question of that very host counts."""
    async with a_world() as world:
        strangers = watched(world)
        steps: dict[str, Any] = {
            "arrive": lambda: strangers.arrive(ADDRESS),
            "leave": lambda: strangers.leave(ADDRESS),
        }
        for step in before:
            if step.startswith("ask"):
                await ask(world, "a2" if step.endswith("a2") else "a1", ADDRESS)
            else:
                steps[step]()
        if not sentence:
            await bring_up(world, "a1", "t1")
            return
        with pytest.raises(AssertionError, match=sentence):
            await bring_up(world, "a1", "t1")
