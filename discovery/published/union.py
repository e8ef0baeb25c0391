"""What all managers have published together, as it was seen last.

Theory of operation
-------------------
* A list that is gone from what a server says is gone: its manager has left, or its lease has run out.
* An error says nothing about lists: what was seen before stays, however long the server is away.
* After an interruption, a list that is missing is missed for `grace_s` before it counts as gone. The server may have come
  back without its memory, or the interruption may have outlasted leases; living managers publish again within that time.
"""

from __future__ import annotations

import random

import structlog
import trio

from beeyard.core.errors import HostError, PeerError
from beeyard.discovery.published.backend import Backend, Contents

# Pauses between tries, in seconds: soon enough that nobody notices a server that was restarted, and never so long that a
# lease runs out in one.
BACK_OFF_FIRST_S = 0.2
BACK_OFF_MAX_S = 5.0

log = structlog.get_logger(__name__)


class BackOff:
    """Pauses that grow from try to try, drawn so that many managers do not come at once."""

    def __init__(self, rng: random.Random, max_s: float = BACK_OFF_MAX_S) -> None:
        self._rng = rng
        self._max_s = max_s
        self._n_failures = 0

    def succeeded(self) -> None:
        """Begin anew."""
        self._n_failures = 0

    async def pause(self) -> None:
        """Wait before the next try."""
        self._n_failures += 1
        longest_s = min(self._max_s, BACK_OFF_FIRST_S * 2 ** min(self._n_failures, 20))
        await trio.sleep(self._rng.uniform(longest_s / 2, longest_s))


class Union:
    """The lists of all managers. `run` keeps it up to date.

    Args:
        name: of the place, for the log.
        grace_s: see the module.
    """

    def __init__(self, backend: Backend, name: str, rng: random.Random, *, grace_s: float) -> None:
        self._backend = backend
        self._name = name
        self._back_off = BackOff(rng)
        self._grace_s = grace_s
        self._seen: Contents = {}
        self._missed: dict[str, tuple[float, tuple[str, ...]]] = {}  # owner: until when it is kept, and its list
        self._interrupted = False
        self._changed = trio.Event()
        self.is_known = False  # whether it was ever read
        self.error = ""  # why it cannot be read now; "": it can
        self.n_errors = 0
        self.seen_at_s: float | None = None  # by trio's clock, when it was last known to be true

    @property
    def lists(self) -> Contents:
        """Owner to its list, those that are missed included."""
        return {**{owner: entries for owner, (_, entries) in self._missed.items()}, **self._seen}

    @property
    def missed(self) -> tuple[str, ...]:
        """Owners whose lists are kept although the server does not have them after an interruption."""
        return tuple(self._missed)

    def entries(self) -> tuple[str, ...]:
        """The nodes of the larger cluster, sorted."""
        return tuple(sorted({entry for entries in self.lists.values() for entry in entries}))

    async def changed(self) -> None:
        """Wait for the next change of `lists` or `error`."""
        await self._changed.wait()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._forget)
            while True:
                try:
                    await self._backend.follow(self._see)
                except (PeerError, HostError) as error:
                    self._fail(str(error))
                await self._back_off.pause()

    def _see(self, contents: Contents) -> None:
        until_s = trio.current_time() + self._grace_s
        before = self.lists
        if self._interrupted:
            self._missed |= {o: (until_s, e) for o, e in self._seen.items() if o not in contents and e}
        for owner in contents:
            self._missed.pop(owner, None)
        if self.error:
            log.info("published lists can be read again", url=self._name, n_lists=len(contents), missed=self.missed)
        self._seen = dict(contents)
        self._interrupted, self.error, self.is_known = False, "", True
        self.seen_at_s = trio.current_time()
        self._back_off.succeeded()
        if before != self.lists:
            log.info("published lists changed", url=self._name, n_lists=len(self.lists), n_nodes=len(self.entries()))
        self._tell()

    def _fail(self, reason: str) -> None:
        self.n_errors += 1
        self._interrupted = True
        if reason != self.error:
            log.warning("cannot read published lists", url=self._name, reason=reason, kept=len(self.entries()))
            self.error = reason
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _forget(self) -> None:
        """Let go of lists that were missed for long enough; while nothing can be read, of none."""
        while True:
            due_s = min((until_s for until_s, _ in self._missed.values()), default=float("inf"))
            changed = self._changed
            with trio.move_on_at(due_s):
                await changed.wait()
                continue
            if self.error:
                await changed.wait()
                continue
            gone = [owner for owner, (until_s, _) in self._missed.items() if until_s <= trio.current_time()]
            for owner in gone:
                del self._missed[owner]
            log.info("lists are gone", url=self._name, lists=gone, n_nodes=len(self.entries()))
            self._tell()


__all__ = ["BACK_OFF_MAX_S", "BackOff", "Union"]
