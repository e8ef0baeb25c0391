"""Who may call a plugin now: a few at once, the pools taking turns, so that a large service holds up no small one."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from beeyard.manager.ipam.fault import PluginFault


class _Waiter:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.fault: PluginFault | None = None


class Turns:
    """Lets `n_max` through at a time. A key may be closed for the others while one works alone.

    Invariant: nobody waits for a key that is open while there is a place.
    """

    def __init__(self, n_max: int) -> None:
        self._n_max = n_max
        self._n_inside = 0
        self._inside: dict[str, int] = {}  # by key
        self._waiting: dict[str, deque[_Waiter]] = {}  # the key whose turn is next comes first
        self._closed: dict[str, trio.Event] = {}  # by key: set when the last inside has left
        self._solo: dict[str, trio.Lock] = {}  # by key, while somebody is alone with it or waits to be

    @property
    def n_waiting(self) -> int:
        """How many wait for a place; those that a closed key holds back are not among them."""
        return sum(len(waiters) for key, waiters in self._waiting.items() if key not in self._closed)

    @property
    def is_full(self) -> bool:
        """Whether whoever comes has to wait."""
        return self._n_inside >= self._n_max

    async def enter(self, key: str) -> None:
        """Wait for a place. Cancellation: none is held.

        Raises:
            PluginFault: `refuse` was called meanwhile.
        """
        await trio.lowlevel.checkpoint()
        if self._n_inside < self._n_max and key not in self._closed and key not in self._waiting:
            self._admit(key)
            return
        waiter = _Waiter()
        self._waiting.setdefault(key, deque()).append(waiter)
        entered = False
        try:
            await waiter.done.wait()
            entered = True
        finally:
            if not entered:
                self._withdraw(key, waiter)
        if waiter.fault is not None:
            raise waiter.fault

    def leave(self, key: str) -> None:
        """Give the place back."""
        self._n_inside -= 1
        self._inside[key] -= 1
        if not self._inside[key]:
            del self._inside[key]
            if key in self._closed:
                self._closed[key].set()
        self._let_in()

    def refuse(self, fault: PluginFault) -> None:
        """Tell everybody who waits that it is of no use."""
        waiting, self._waiting = self._waiting, {}
        for waiters in waiting.values():
            for waiter in waiters:
                waiter.fault = fault
                waiter.done.set()

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Inside, nobody else is in with this key. It takes no place of its own."""
        lock = self._solo.setdefault(key, trio.Lock())
        try:
            async with lock:
                empty = self._closed[key] = trio.Event()
                try:
                    if key in self._inside:
                        await empty.wait()
                    yield
                finally:
                    del self._closed[key]
                    self._let_in()
        finally:
            # A lock that is handed on is locked, so nobody waits for this one.
            if not lock.locked():
                self._solo.pop(key, None)

    def _admit(self, key: str) -> None:
        self._n_inside += 1
        self._inside[key] = self._inside.get(key, 0) + 1

    def _let_in(self) -> None:
        while self._n_inside < self._n_max:
            key = next((key for key in self._waiting if key not in self._closed), None)
            if key is None:
                return
            waiters = self._waiting.pop(key)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[key] = waiters  # behind all others
            self._admit(key)
            waiter.done.set()

    def _withdraw(self, key: str, waiter: _Waiter) -> None:
        """Cancelled while waiting, perhaps at the very moment of being let in."""
        if waiter.done.is_set():
            if waiter.fault is None:
                self.leave(key)
            return
        waiters = self._waiting[key]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[key]


__all__ = ["Turns"]
