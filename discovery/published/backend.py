"""What every place where lists are published offers, and what publishing needs of others.

A *list* is what one manager has published under its own key with a lease, or one entry that classic Swarm wrote. Contents are
always whole: whoever follows gets all lists each time, never differences, so a lost notice costs time and not truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import trio

from beeyard.core.errors import HostError, PeerError, RemoteProtocolError

# Owner to its entries. Owners of lists are managers; what classic Swarm or a person wrote stands under `OTHERS`.
Contents = Mapping[str, tuple[str, ...]]
OTHERS = ""
# Changes that come together are read together.
GATHER_S = 0.05
# All is read again so often whether or not a watch has told anything: a connection that died without a word shows then.
RELIST_S = 60.0


class LeaseLost(PeerError):
    """The lease ran out, or somebody took it away: what was written with it is gone; take another one."""


class Lease(Protocol):
    """The right to one key for a while. It ends by itself when it is not renewed."""

    async def put(self, entries: Sequence[str]) -> None:
        """Write our list, whole. Idempotent: yes.

        Raises:
            LeaseLost, PeerError, HostError
        """

    async def renew(self) -> None:
        """Stay for another full time; called at least each third of it. Idempotent: yes.

        Raises:
            LeaseLost, PeerError, HostError
        """

    async def revoke(self) -> None:
        """End it, and what was put with it, at once. Idempotent: yes.

        Raises:
            PeerError, HostError: it ends by itself after its time.
        """


class Backend(Protocol):
    """One place where lists are published."""

    async def read(self) -> Contents:
        """All that is published now.

        Raises:
            PeerError, HostError
        """

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """Call `seen` with what is published now, and again within 1 s of each change, until cancelled.

        Raises:
            PeerError, HostError: nothing more is known; what was seen last is not wrong for that.
        """

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """Take the key of `owner`, also from an earlier life of it, which changes nothing that is written there.

        Raises:
            PeerError, HostError
            Unsupported: nothing can be published here.
        """

    async def aclose(self) -> None:
        """Close connections, with what time that takes. Leases that were not revoked end at once or run out."""


@contextmanager
def understood(server: str) -> Iterator[None]:
    """Reading an answer: whatever is not as it should be is the server's fault.

    Raises:
        RemoteProtocolError
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise RemoteProtocolError(
            f"{server} answers in another form than expected: {type(error).__name__} {error}"
        ) from None


class Wake:
    """What those who watch tell the one who reads: something has changed, or watching is over and why."""

    def __init__(self) -> None:
        self._rung = trio.Event()
        self._error: PeerError | HostError | None = None

    def ring(self) -> None:
        """Something has changed."""
        self._rung.set()

    def fail(self, error: PeerError | HostError) -> None:
        """It can be watched no longer."""
        self._error = self._error or error
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        """Whether something has changed since the last call, within a time.

        Raises:
            PeerError, HostError: what `fail` was given.
        """
        with trio.move_on_after(timeout_s):
            await self._rung.wait()
        if self._error is not None:
            raise self._error
        rung, self._rung = self._rung.is_set(), trio.Event()
        return rung


class LocalMembers(Protocol):
    """The members of the local cluster, as gossip knows them: what a manager publishes."""

    def members(self) -> Sequence[str] | None:
        """HOST:PORT of the gossip of each node that is alive; None: gossip has not started, and nobody knows."""

    async def changed(self) -> None:
        """Return when `members` may give something else than at the moment of this call."""


__all__ = [
    "GATHER_S",
    "OTHERS",
    "RELIST_S",
    "Backend",
    "Contents",
    "Lease",
    "LeaseLost",
    "LocalMembers",
    "Wake",
    "understood",
]
