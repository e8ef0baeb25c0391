"""A lock for blocks that wait for something anyway."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from beeyard.agent.turn import Turn


async def test_one_at_a_time_in_the_order_of_asking(autojump_clock: trio.testing.MockClock) -> None:
    turn, said = Turn(), []

    async def take(name: str) -> None:
        async with turn:
            said.append(f"{name} in")
            await trio.sleep(1)
            said.append(f"{name} out")

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(take, name)
            await trio.testing.wait_all_tasks_blocked()
        assert turn.locked()
    assert said == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert not turn.locked()


async def test_a_free_one_is_taken_without_a_switch_of_tasks() -> None:
    turn, switched = Turn(), []

    async def other() -> None:
        switched.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with turn:
            assert not switched


async def test_who_is_cancelled_does_not_get_it() -> None:
    """Free or taken."""
    turn = Turn()

    async def take(scope: trio.CancelScope) -> None:
        with scope:
            async with turn:
                raise AssertionError

    free = trio.CancelScope()
    free.cancel()
    await take(free)
    async with trio.open_nursery() as nursery:
        async with turn:
            waiting = trio.CancelScope()
            nursery.start_soon(take, waiting)
            await trio.testing.wait_all_tasks_blocked()
            waiting.cancel()
            await trio.testing.wait_all_tasks_blocked()
        assert not turn.locked()
    assert (free.cancelled_caught, waiting.cancelled_caught) == (True, True)


async def test_an_error_inside_gives_it_back() -> None:
    turn = Turn()
    with pytest.raises(ValueError, match="left"):
        async with turn:
            raise ValueError("left")
    assert not turn.locked()
