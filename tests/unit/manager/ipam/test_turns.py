"""Turns: a few at once, fair between keys, nothing lost when somebody who waits is cancelled."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from beeyard.manager.ipam.fault import FaultKind, PluginFault
from beeyard.manager.ipam.turns import Turns

FAULT = PluginFault("p", FaultKind.HUNG, "no answer within 10 s")


async def work(turns: Turns, key: str, name: str, done: list[str], hold: trio.Event | None = None) -> None:
    await turns.enter(key)
    try:
        done.append(name)
        if hold is not None:
            await hold.wait()
    finally:
        turns.leave(key)


async def test_a_large_pool_holds_up_no_small_one() -> None:
    """With one place and 50 of one pool in front, the other pool's only one is second."""
    turns, done, hold = Turns(1), list[str](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, turns, "big", "b0", done, hold)
        await wait_all_tasks_blocked()
        for number in range(1, 50):
            nursery.start_soon(work, turns, "big", f"b{number}", done)
        await wait_all_tasks_blocked()
        nursery.start_soon(work, turns, "small", "s", done)
        await wait_all_tasks_blocked()
        assert turns.n_waiting == 50
        hold.set()
    assert "s" in done[:3]
    assert len(done) == 51
    assert (turns.n_waiting, turns.is_full) == (0, False)


async def test_no_more_than_so_many_at_once_and_cancelled_ones_leave_no_hole() -> None:
    """Cancelling whoever waits, also at the moment of being let in, keeps the count of places."""
    turns, done, hold = Turns(2), list[str](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, turns, "a", "1", done, hold)
        nursery.start_soon(work, turns, "a", "2", done, hold)
        await wait_all_tasks_blocked()
        with trio.CancelScope() as given_up:
            async with trio.open_nursery() as waiting:
                waiting.start_soon(work, turns, "a", "3", done)
                waiting.start_soon(work, turns, "b", "4", done)
                await wait_all_tasks_blocked()
                assert sorted(done) == ["1", "2"]
                hold.set()
                given_up.cancel()
    assert sorted(done)[:2] == ["1", "2"]
    assert not turns.is_full
    with trio.fail_after(1):
        await work(turns, "a", "5", done)
        await work(turns, "b", "6", done)


async def test_whoever_waits_is_told_that_it_is_of_no_use() -> None:
    """`refuse` ends all waits with the fault; whoever is inside goes on."""
    turns, done, hold = Turns(1), list[str](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, turns, "a", "1", done, hold)
        await wait_all_tasks_blocked()

        async def refused() -> None:
            with pytest.raises(PluginFault, match="no answer"):
                await turns.enter("b")
            done.append("refused")

        nursery.start_soon(refused)
        await wait_all_tasks_blocked()
        turns.refuse(FAULT)
        await wait_all_tasks_blocked()
        assert done == ["1", "refused"]
        hold.set()
    assert not turns.is_full


async def test_alone_means_alone_with_the_key() -> None:
    """It waits for those inside, keeps others of its key out, and lets other keys pass."""
    turns, done, hold = Turns(4), list[str](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, turns, "a", "inside", done, hold)
        await wait_all_tasks_blocked()

        async def alone() -> None:
            async with turns.alone("a"):
                done.append("alone")
                await wait_all_tasks_blocked(0.01)
                done.append("alone ends")

        nursery.start_soon(alone)
        nursery.start_soon(alone)
        await wait_all_tasks_blocked()
        nursery.start_soon(work, turns, "a", "after", done)
        nursery.start_soon(work, turns, "b", "other", done)
        await wait_all_tasks_blocked()
        assert done == ["inside", "other"]
        hold.set()
    order = [entry for entry in done if entry.startswith("alone")]
    assert order == ["alone", "alone ends", "alone", "alone ends"]
    assert "after" in done


async def test_keys_that_nobody_uses_are_forgotten() -> None:
    """Also when whoever waited to be alone gave up, before or after another had left."""
    turns, done, hold = Turns(4), list[str](), trio.Event()

    async def alone() -> None:
        async with turns.alone("a"):
            await hold.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(alone)
        await wait_all_tasks_blocked()
        with trio.move_on_after(0):
            async with turns.alone("a"):
                done.append("never")
        assert list(turns._solo) == ["a"]
        nursery.start_soon(alone)
        await wait_all_tasks_blocked()
        hold.set()
    with trio.CancelScope() as cancelled:
        cancelled.cancel()
        async with turns.alone("b"):
            done.append("never")
    assert (turns._solo, done) == ({}, [])
