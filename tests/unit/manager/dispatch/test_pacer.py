"""The pacer: who is due is called in time, once, and in order."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from beeyard.manager.dispatch.pacer import Pacer


class Listener:
    """Writes down when it was called, and may ask for more."""

    def __init__(self, name: str, heard: list[tuple[str, float]], pacer: Pacer, again_s: float = 0.0) -> None:
        self._name = name
        self._heard = heard
        self._pacer = pacer
        self._again_s = again_s

    def due(self, at_s: float) -> None:
        self._heard.append((self._name, round(trio.current_time(), 3)))
        if self._again_s:
            again_s, self._again_s = self._again_s, 0.0
            self._pacer.call(at_s + again_s, self)


async def test_who_is_due_is_called_in_time_and_in_order(autojump_clock: MockClock) -> None:
    """An earlier time overtakes a later one while the pacer sleeps; of equals the first to ask comes first; past is now."""
    pacer, heard = Pacer(), list[tuple[str, float]]()
    start_s = trio.current_time()
    a, b, c = (Listener(name, heard, pacer) for name in "abc")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pacer.run)
        await trio.sleep(1)
        pacer.call(start_s + 5, a)
        pacer.call(start_s + 3, b)
        pacer.call(start_s + 5, c)
        pacer.call(-1.0, c)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [(name, at_s - start_s) for name, at_s in heard] == [("c", 1), ("b", 3), ("a", 5), ("c", 5)]


async def test_who_is_called_may_ask_for_more(autojump_clock: MockClock) -> None:
    """Also for a time that has passed: it comes in the same turn."""
    pacer, heard = Pacer(), list[tuple[str, float]]()
    start_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pacer.run)
        pacer.call(start_s + 1, Listener("a", heard, pacer, again_s=2))
        pacer.call(start_s + 1, Listener("b", heard, pacer, again_s=-5))
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [(name, at_s - start_s) for name, at_s in heard] == [("a", 1), ("b", 1), ("b", 1), ("a", 3)]
