"""When this node last had word from a manager, and how long a task's links may stay up without any.

A lease counts from the moment the agent *sent* the message that the manager has confirmed (`Hello` by `Welcome`, a
heartbeat by `LeaseRenewed`). The manager counts from when it received that message, which is later: so whatever the
network did in between, the agent's end of a lease is never later than the manager's. All times are trio's clock.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from beeyard.core.errors import HostError
from beeyard.runtime.host import Controller

# A lease is extended only when that adds a hundredth of it: a 24 h lease need not be written every 5 s for each task.
LEASE_STEP = 0.01


class LeasePassed(HostError):
    """There was no word from a manager for so long that the task's links must be down."""

    def __init__(self, lease_s: float) -> None:
        super().__init__(lease_s)
        self.lease_s = lease_s

    def __str__(self) -> str:
        return f"no contact with a manager for longer than the lease of {self.lease_s:g} s"


class Contact:
    """The agent's knowledge of being in touch."""

    def __init__(self) -> None:
        self.confirmed_at_s = -math.inf  # when the newest message that a manager has confirmed was sent
        self.heard_at_s = -math.inf  # when a manager's newest message was received

    def confirm(self, sent_at_s: float) -> None:
        """A manager has received what was sent then. Never goes backwards."""
        self.confirmed_at_s = max(self.confirmed_at_s, sent_at_s)


class Lease:
    """One task's lease as this agent gave it to the task's shim, which keeps it even when the agent is dead."""

    def __init__(self, contact: Contact, lease_s: float, *, binds: bool = True) -> None:
        """`binds`: whether anything hangs on it. If not, the one that a shim begins with, from its own start, will do."""
        self._contact = contact
        self._lease_s = lease_s
        self._binds = binds
        self._until_s: float | None = None  # None: not given by this life of the agent
        self._extending = False

    @property
    def has_passed(self) -> bool:
        """Whether a lease was given and is over: the shim has acted, and the links do not come back."""
        return self._until_s is not None and trio.current_time() >= self._until_s

    def is_due(self, controller: Controller) -> bool:
        """Whether there is something to do: to extend it, or to see that it has passed."""
        if controller.phase not in ("prepared", "started"):
            return False
        return self._can_grow or self.has_passed or controller.lapsed

    @property
    def _can_grow(self) -> bool:
        until_s = self._contact.confirmed_at_s + self._lease_s
        enough = self._until_s is None or until_s - self._until_s >= self._lease_s * LEASE_STEP
        return enough and not self._extending and not self.has_passed and until_s > trio.current_time()

    async def extend(self, controller: Controller) -> None:
        """Extend to what the newest confirmed contact allows. Does nothing once the lease has passed.

        Raises:
            HostError: the shim cannot be reached and keeps the lease it has.
        """
        if self._until_s is None and not self._binds:
            self._until_s = trio.current_time() + self._lease_s
        if not self._can_grow:
            return
        until_s = self._contact.confirmed_at_s + self._lease_s
        self._extending = True
        try:
            await controller.renew_lease(until_s - trio.current_time())
            self._until_s = until_s
        finally:
            self._extending = False

    async def guard(self, make_link: Callable[[], Awaitable[object]]) -> None:
        """Make a link under this lease: when the lease ends meanwhile, however long it took, there is no link.

        Cancellation: as `make_link`'s, which must be all or nothing.

        Raises:
            LeasePassed: there is no lease under which the link may be up. It may be if this was found out only after it
                was made (this machine stood still): the caller takes the links down, as after any error.
        """
        if self._until_s is None:
            raise LeasePassed(self._lease_s)
        with trio.CancelScope(deadline=self._until_s):
            await make_link()
        # The shim may have looked at the clock for the last time just before the link came up: look once more.
        if self.has_passed:
            raise LeasePassed(self._lease_s)


__all__ = ["Contact", "Lease", "LeasePassed"]
