"""Which managers this agent knows, kept on disk so that a restart finds a cluster that has moved."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Files

# Enough for every manager a cluster has; a manager cannot make the list grow without end.
LEARNED_MAX = 16

log = structlog.get_logger(__name__)


class ManagerList:
    """Addresses of managers, tried in turn: those of the configuration, then those that managers told us."""

    def __init__(self, files: Files, state_dir: str, configured: Sequence[str]) -> None:
        self._files = files
        self._path = f"{state_dir}/managers"
        self._configured = list(configured)
        self._learned: list[str] = []
        self._position = 0

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
        return list(dict.fromkeys([*self._configured, *self._learned]))

    @property
    def current(self) -> str:
        """The one to connect to now."""
        addresses = self.addresses
        assert addresses, "an agent without a manager's address cannot be configured"
        return addresses[self._position % len(addresses)]

    def advance(self) -> None:
        """That one did not work: the next one's turn."""
        self._position = (self._position + 1) % len(self.addresses)

    async def learn(self, addresses: Sequence[str]) -> None:
        """Take over what a manager says about the managers there are. A disk that refuses costs only the memory of it."""
        learned = list(addresses[:LEARNED_MAX])
        if not learned or learned == self._learned:
            return
        current = self.current
        self._learned = learned
        if current in self.addresses:
            self._position = self.addresses.index(current)
        try:
            await self._files.replace(self._path, msgspec.json.encode(learned))
        except DiskError as error:
            log.warning("the list of managers was not written", reason=str(error))


__all__ = ["ManagerList"]
