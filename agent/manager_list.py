"""Which managers this agent knows, kept on disk so that a restart finds a cluster that has moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Files

# Enough for every manager a cluster has; a manager cannot make the list grow without end.
LEARNED_MAX = 16

log = structlog.get_logger(__name__)


class ManagerList:
    """Addresses of managers, tried in turn: those of the configuration, those that managers told us, and what gossip says."""

    def __init__(self, files: Files, state_dir: str, configured: Sequence[str]) -> None:
        self._files = files
        self._path = f"{state_dir}/managers"
        self._configured = list(configured)
        self._learned: list[str] = []
        self._found: Callable[[], Sequence[str]] = lambda: ()
        self._found_changed: Callable[[], Awaitable[None]] = trio.sleep_forever
        self._turn = ""  # whose turn it is; "": the first one's

    def also(self, found: Callable[[], Sequence[str]], changed: Callable[[], Awaitable[None]]) -> None:
        """Try these as well, whoever says them; `changed` waits until they may be others."""
        self._found, self._found_changed = found, changed

    async def load(self) -> None:
        """Read what was learned earlier; a damaged file counts as none."""
        data = await self._files.read(self._path)
        if data is not None:
            try:
                self._learned = msgspec.json.decode(data, type=list[str])
            except msgspec.MsgspecError as error:
                log.warning("the list of managers is damaged and not used", path=self._path, reason=str(error))

    @property
    def addresses(self) -> list[str]:
        """All of them, each once, in the order in which they are tried."""
        return list(dict.fromkeys([*self._configured, *self._learned, *self._found()]))

    def is_hearsay(self, address: str) -> bool:
        """Whether neither a person nor a manager of the cluster named this one."""
        return address not in self._configured and address not in self._learned

    async def current(self) -> str:
        """The one to connect to now; waits while none is known."""
        while not (addresses := self.addresses):
            log.info("no manager is known yet; waiting until gossip tells of one")
            await self._found_changed()
        if self._turn not in addresses:
            self._turn = addresses[0]
        return self._turn

    def advance(self) -> None:
        """That one did not work: the next one's turn."""
        addresses = self.addresses
        # One that is gone meanwhile is followed by the first.
        at = addresses.index(self._turn) if self._turn in addresses else -1 if self._turn else 0
        self._turn = addresses[(at + 1) % len(addresses)] if addresses else ""

    async def learn(self, addresses: Sequence[str]) -> None:
        """Take over what a manager says about the managers there are. A disk that refuses costs only the memory of it."""
        learned = list(addresses[:LEARNED_MAX])
        if not learned or learned == self._learned:
            return
        self._learned = learned
        try:
            await self._files.replace(self._path, msgspec.json.encode(learned))
        except DiskError as error:
            log.warning("the list of managers was not written", reason=str(error))


__all__ = ["ManagerList"]
