"""What every place to publish at promises, checked the same way in memory and against real servers."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
import trio

from beeyard.discovery.published.backend import OTHERS, Backend, Contents, Lease, LeaseLost
from beeyard.discovery.published.places import Ports, open_backend
from beeyard.discovery.published.publisher import Publisher
from beeyard.discovery.published.union import Union
from beeyard.discovery.published.url import parse_url
from tests.support.fake_lists import Members

A, B, C = "10.0.0.1:3388", "10.0.0.2:3388", "[2001:db8::3]:3388"


class Machine(Protocol):
    """A machine from which the place is reached."""

    @property
    def ports(self) -> Ports: ...

    @property
    def url(self) -> str: ...

    def cut(self) -> None:
        """Nothing comes from it any more, as if it had died."""

    def mend(self) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where lists are published, for a test.

    Attributes:
        machine: makes another machine.
        ttl_s: of leases.
        expiry_s: within which a list is gone whose manager has died.
        write: puts an entry there as classic Swarm does; None: that has no form here.
        leases_end: whether who comes too late is told that his lease is over.
    """

    machine: Callable[[], Awaitable[Machine]]
    ttl_s: float
    expiry_s: float
    write: Callable[[str], Awaitable[None]] | None = None
    leases_end: bool = True
    patience_s: float = 2.0  # for a change to be seen: a second is promised, and the machine may be busy


class Watcher:
    """Follows a place and remembers all that it saw."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.seen: list[Contents] = []
        self._news = trio.Event()

    async def run(self) -> None:
        await self.backend.follow(self.see)

    def see(self, contents: Contents) -> None:
        self.seen.append(dict(contents))
        self._news.set()
        self._news = trio.Event()

    async def until(self, expected: Contents, patience_s: float) -> None:
        """Wait until that is what there is."""
        with trio.move_on_after(patience_s):
            while not self.seen or self.seen[-1] != expected:
                await self._news.wait()
        assert self.seen
        assert self.seen[-1] == expected


async def check_place(place: Place) -> None:
    """Everything that `Backend` promises of a place where lists can be published; it is empty at first, and in the end."""
    ours, theirs = await place.machine(), await place.machine()
    backend, other = await _open(place, ours), await _open(place, theirs)
    watcher = Watcher(other)
    async with trio.open_nursery() as nursery:
        lease = await backend.lease("m1", place.ttl_s)
        await lease.put([A])
        nursery.start_soon(watcher.run)
        await watcher.until({"m1": (A,)}, place.patience_s)
        await _check_changes(place, watcher, backend, lease)
        await _check_second_life(place, watcher)
        await lease.revoke()
        nursery.cancel_scope.cancel()
    await backend.aclose()
    await other.aclose()


async def _check_changes(place: Place, watcher: Watcher, backend: Backend, first: Lease) -> None:
    """Each change is seen, whole lists, sorted, of every owner; an empty list is one too."""
    await first.put([C, B, A])
    await watcher.until({"m1": (A, B, C)}, place.patience_s)
    second = await watcher.backend.lease("m2", place.ttl_s)
    assert await backend.read() == {"m1": (A, B, C)}  # a lease alone is no list
    await second.put([B])
    await watcher.until({"m1": (A, B, C), "m2": (B,)}, place.patience_s)
    await first.put([])
    await watcher.until({"m1": (), "m2": (B,)}, place.patience_s)
    if place.write is not None:
        await place.write(B)
        await watcher.until({"m1": (), "m2": (B,), OTHERS: (B,)}, place.patience_s)
    assert await backend.read() == watcher.seen[-1]
    await second.revoke()
    await second.revoke()
    await first.revoke()
    await watcher.until({OTHERS: (B,)} if place.write is not None else {}, place.patience_s)


async def _check_second_life(place: Place, watcher: Watcher) -> None:
    """What is renewed stays; a dead manager's list outlives it, is taken over without a gap, and ends with its lease."""
    rest: Contents = {OTHERS: (B,)} if place.write is not None else {}
    dying = await place.machine()
    backend = await _open(place, dying)
    lease = await backend.lease("m1", place.ttl_s)
    await lease.put([A])
    await lease.renew()
    await watcher.until({"m1": (A,), **rest}, place.patience_s)
    dying.cut()
    n_seen = len(watcher.seen)
    machine = await place.machine()
    again = await _open(place, machine)
    second = await again.lease("m1", place.ttl_s)
    await second.put([A, B])
    await watcher.until({"m1": (A, B), **rest}, place.patience_s)
    for _ in range(4):  # the first life's lease ends meanwhile
        await trio.sleep(place.ttl_s / 3)
        await second.renew()
    assert all(contents.get("m1") for contents in watcher.seen[n_seen:])
    machine.cut()
    await watcher.until(rest, place.expiry_s)
    machine.mend()
    if place.leases_end:
        with pytest.raises(LeaseLost):
            await second.renew()
        with pytest.raises(LeaseLost):
            await second.put([A])
    await again.aclose()
    dying.mend()
    await backend.aclose()


async def _open(place: Place, machine: Machine) -> Backend:
    return open_backend(parse_url(machine.url), machine.ports, ttl_s=place.ttl_s)


async def check_publishing(place: Place, outage: Callable[[], Awaitable[None]] | None = None) -> None:
    """Publisher and union together: within a second, through an outage without losing a node, and away at once.

    Args:
        outage: takes the servers away for longer than anybody's patience, and returns when they are back.
    """
    ours, theirs = await place.machine(), await place.machine()
    backend, other = await _open(place, ours), await _open(place, theirs)
    members = Members(A)
    publisher = Publisher(backend, "here", members, "m1", random.Random(1), ttl_s=place.ttl_s)
    union = Union(other, "there", random.Random(2), grace_s=place.ttl_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(union.run)
        stop = trio.CancelScope()
        nursery.start_soon(_within, stop, publisher.run)
        await until(lambda: union.entries() == (A,), 10.0)
        members.set(A, B)
        await until(lambda: union.entries() == (A, B), place.patience_s)
        if outage is not None:
            seen: list[tuple[str, ...]] = []
            nursery.start_soon(_record, union, seen)
            await outage()
            members.set(A, B, C)
            await until(lambda: union.entries() == (A, B, C), 15.0)
            await until(lambda: not union.error and not publisher.error, 10.0)
            assert set(seen) <= {(A, B), (A, B, C)}
            assert union.n_errors
        stop.cancel()
        await until(lambda: union.entries() == (), place.patience_s + (place.ttl_s if outage else 0.0))
        nursery.cancel_scope.cancel()
    await backend.aclose()
    await other.aclose()


async def _within(scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()


async def _record(union: Union, seen: list[tuple[str, ...]]) -> None:
    while union.entries():
        seen.append(union.entries())
        await union.changed()


async def until(true: Callable[[], bool], patience_s: float) -> None:
    """Wait for something; fails when it does not come."""
    deadline_s = trio.current_time() + patience_s
    while not true() and trio.current_time() < deadline_s:  # noqa: ASYNC110 (there are no events for all that tests ask)
        await trio.sleep(0.02)
    assert true()
