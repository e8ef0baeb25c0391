"""What tasks share goes with the last one that needs it, whatever happens at the same time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.agent.use_count import UseCount
from beeyard.core.errors import NetlinkError


class Things:
    """What there is; taking one away takes a second, and fails as often as `failures` says."""

    def __init__(self, *present: str) -> None:
        self.present = list(present)
        self.failures = 0
        self.uses = UseCount(self.remove)

    async def remove(self, thing: str) -> None:
        await trio.sleep(1)
        if self.failures:
            self.failures -= 1
            raise NetlinkError(105, "delete", thing, "the kernel said: no buffer space")
        self.present = [other for other in self.present if other != thing]


async def test_a_thing_goes_with_the_last_of_those_that_end_together(autojump_clock: MockClock) -> None:
    things = Things("a", "b")
    for task_id, needed in (("t1", ["a"]), ("t2", ["a", "b"]), ("t3", ["b"])):
        things.uses.need(task_id, needed)
    await things.uses.settle(["a", "b"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(things.uses.leave, "t1")
        nursery.start_soon(things.uses.leave, "t2")
    assert things.present == ["b"]
    await things.uses.leave("t3")
    await things.uses.leave("t3")
    await things.uses.leave("unknown")
    assert things.present == []


async def test_a_removal_that_fails_is_made_up_for(autojump_clock: MockClock) -> None:
    """`settle` is insisted on, and so is `leave`."""
    things = Things("a", "b")
    things.uses.need("t1", ["b"])
    things.failures = 1
    with pytest.raises(NetlinkError):
        await things.uses.settle(["a", "b"])
    assert things.present == ["a", "b"]
    await things.uses.settle(["a", "b"])
    assert things.present == ["b"]
    things.failures = 1
    with pytest.raises(NetlinkError):
        await things.uses.leave("t1")
    assert things.present == ["b"]
    await things.uses.leave("t1")
    assert things.present == []


async def test_nothing_is_taken_away_before_all_tasks_are_known(autojump_clock: MockClock) -> None:
    things = Things("a", "b")
    things.uses.need("t1", ["a"])
    await things.uses.leave("t1")
    assert things.present == ["a", "b"]
    things.uses.need("t2", ["b"])
    await things.uses.settle(["a", "b"])
    assert things.present == ["b"]


async def test_a_thing_that_is_needed_again_while_it_waits_to_go_stays(autojump_clock: MockClock) -> None:
    """A removal that has waited for its turn looks again."""
    things = Things("a")
    await things.uses.settle([])
    things.uses.need("t1", ["a"])
    async with trio.open_nursery() as nursery:
        async with things.uses.lock:
            nursery.start_soon(things.uses.leave, "t1")
            await trio.sleep(1)
            things.uses.need("t2", ["a"])
    assert things.present == ["a"]
