"""What a member keeps on disk: the snapshot of members and clocks, and the keyring."""

from __future__ import annotations

import math

import structlog
import trio

from beeyard.core.errors import HostError, InvalidSpec
from beeyard.discovery.gossip.config import GossipConfig
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire.keyring import KEY_FILE_MODE, Keyring, keys_from_json
from beeyard.runtime.host import Files

log = structlog.get_logger(__name__)

# Source: Serf 0.9.4 serf/snapshot.go: lines are written at most so often, and the file anew when it is larger than this, or
# than twice 128 bytes a member.
FLUSH_INTERVAL_S = 0.5
COMPACT_BYTES = 128 << 10
BYTES_PER_MEMBER = 128


class Memory:
    """The files of one member. A file that cannot be written is told, and missed at the next start: gossip goes on."""

    def __init__(self, files: Files, config: GossipConfig) -> None:
        self._files = files
        self._config = config
        self._lines: list[str] = []
        self._n_bytes = 0
        self._changed = trio.Event()
        self._keyring_changed = False

    @property
    def keeps_snapshot(self) -> bool:
        """Whether there is to be a snapshot."""
        return bool(self._config.snapshot_path)

    async def read_snapshot(self) -> str:
        """The snapshot of the life before; "" for none."""
        if not self._config.snapshot_path:
            return ""
        text = (await self._files.read(self._config.snapshot_path) or b"").decode(errors="replace")
        self._n_bytes = len(text)
        return text

    async def read_keys(self) -> list[bytes]:
        """The keys to begin with: those of the file, once there is one.

        Raises:
            InvalidSpec: the file is no keyring; names it.
        """
        path = self._config.keyring_path
        data = await self._files.read(path) if path else None
        if data is None:
            return list(self._config.keys)
        try:
            return keys_from_json(data.decode())
        except (InvalidSpec, UnicodeDecodeError) as error:
            raise InvalidSpec("keyring_path", f"{path}: {error}") from error

    def note_lines(self, lines: list[str]) -> None:
        """Lines to append to the snapshot."""
        self._lines += lines
        self._changed.set()

    def note_keyring(self) -> None:
        """The keyring is another one."""
        self._keyring_changed = bool(self._config.keyring_path)
        self._changed.set()

    async def keep(self, serf: Serf, keyring: Keyring) -> None:
        """Write what is noted, until cancelled; what came last is written before that takes effect."""
        try:
            while True:
                await self._changed.wait()
                await self.flush(serf, keyring)
                await trio.sleep(FLUSH_INTERVAL_S)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + 2.0, shield=True):
                await self.flush(serf, keyring)

    async def flush(self, serf: Serf, keyring: Keyring) -> None:
        """Write what is noted."""
        self._changed = trio.Event()
        try:
            if self._keyring_changed:
                self._keyring_changed = False
                await self._files.replace(self._config.keyring_path, keyring.to_json().encode(), mode=KEY_FILE_MODE)
            lines, self._lines = self._lines, []
            if lines and self._config.snapshot_path:
                await self._write_snapshot(serf, "".join(line.rstrip("\n") + "\n" for line in lines).encode())
        except HostError as error:
            log.warning("cannot keep what gossip knows", reason=str(error))

    async def _write_snapshot(self, serf: Serf, data: bytes) -> None:
        most = max(COMPACT_BYTES, 2 * BYTES_PER_MEMBER * len(serf.members()))
        if self._n_bytes + len(data) > most:
            data = serf.compact_snapshot().encode()
            await self._files.replace(self._config.snapshot_path, data)
            self._n_bytes = len(data)
            # What is large by itself is not written anew with every line.
            if len(data) > most // 2:
                self._n_bytes = -math.ceil(len(data) / 2)
        else:
            await self._files.append(self._config.snapshot_path, data)
            self._n_bytes += len(data)


__all__ = ["Memory"]
