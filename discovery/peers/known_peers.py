"""The peers that this daemon has met, kept on disk so that a restart finds the cluster without looking for it.

Peers that failed or left stay in the file with the time since when they are gone: after a power cut of the whole room all
are gone, and they are the way back. The file is only ever replaced as a whole, and one that cannot be read counts as none:
that costs a search, never the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import structlog

from beeyard.core.errors import DiskError
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import Member
from beeyard.runtime.host import Files

# A peer that is gone is given up after so long; at its address there may be somebody else by then.
FORGET_AFTER_S = 30 * 86400.0
# Enough to find any cluster by; of more, the newest are kept.
PEERS_MAX = 256

log = structlog.get_logger(__name__)


class KnownPeer(msgspec.Struct, frozen=True, kw_only=True):
    """One peer. Times are by the wall clock; `gone_at_s` 0: it is alive."""

    name: str
    host: str
    port: int
    gone_at_s: float = 0.0

    @property
    def address(self) -> Address:
        """Where it gossips, or did."""
        return Address(self.host, self.port)


class KnownPeers:
    """The peers of one daemon, in its file."""

    def __init__(self, files: Files, path: str, wall_now_s: Callable[[], float]) -> None:
        self._files = files
        self._path = path
        self._wall_now_s = wall_now_s
        self._peers: dict[str, KnownPeer] = {}
        self._written: bytes = b""

    async def load(self) -> None:
        """Read the file. Whatever is wrong with it is told and forgotten."""
        try:
            data = await self._files.read(self._path)
            peers = msgspec.json.decode(data, type=list[KnownPeer]) if data is not None else []
        except (DiskError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the known peers cannot be read and are looked for anew", path=self._path, reason=str(error))
            return
        usable = [peer for peer in peers if peer.name and peer.host and 0 < peer.port < 65536]
        self._peers = {peer.name: peer for peer in usable[:PEERS_MAX]}
        self._written = data or b""

    def addresses(self) -> list[Address]:
        """Where to look for them: those that lived at last first, then those that were gone, the latest first."""
        peers = sorted(self._peers.values(), key=lambda peer: (bool(peer.gone_at_s), -peer.gone_at_s, peer.name))
        return list(dict.fromkeys(peer.address for peer in peers))

    def peers(self) -> list[KnownPeer]:
        """All of them by name."""
        return [self._peers[name] for name in sorted(self._peers)]

    async def note(self, members: Iterable[Member]) -> None:
        """Take over what gossip says, without this daemon itself. A disk that refuses costs only the memory of it.

        Peers that gossip does not tell of (any more, or not yet) are kept as they are.
        """
        now_s = self._wall_now_s()
        for member in members:
            before = self._peers.get(member.name)
            since_s = before.gone_at_s if before is not None and before.gone_at_s else now_s
            gone_at_s = 0.0 if member.status in ("alive", "leaving") else since_s
            host, port = member.address
            self._peers[member.name] = KnownPeer(name=member.name, host=host, port=port, gone_at_s=gone_at_s)
        self._forget_oldest(now_s)
        await self._write()

    def _forget_oldest(self, now_s: float) -> None:
        kept = [peer for peer in self._peers.values() if not peer.gone_at_s or now_s - peer.gone_at_s < FORGET_AFTER_S]
        kept.sort(key=lambda peer: (bool(peer.gone_at_s), -peer.gone_at_s, peer.name))
        self._peers = {peer.name: peer for peer in kept[:PEERS_MAX]}

    async def _write(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self.peers()), indent=1)
        if data == self._written:
            return
        try:
            await self._files.replace(self._path, data)
            self._written = data
        except DiskError as error:
            log.warning("the known peers were not written", path=self._path, reason=str(error))


__all__ = ["FORGET_AFTER_S", "PEERS_MAX", "KnownPeer", "KnownPeers"]
