"""Lists in one file that the managers of a host share, in the form that classic Swarm reads: one entry a line.

What a person has written stays as it is. A manager's list is a block between two comments, with the end of its lease by this
host's clock in the first:

    # beeyard list yard1-4mxk2 until 1764538245.250
    10.0.0.7:3388
    # beeyard end

Whoever writes holds the lock, replaces the file whole, and leaves out blocks whose time is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
import trio

from beeyard.core.errors import HostError, InvalidSpec
from beeyard.discovery.published.backend import OTHERS, Contents, Lease
from beeyard.discovery.published.entries import legible, parse_list, written
from beeyard.runtime.host import Files
from beeyard.runtime.host_lists import ListServers

# A change is believed when two looks in a row agree: an editor empties a file before it writes it.
LOOK_S = 0.3
_HEAD = re.compile(r"# beeyard list (\S+) until ([0-9]{1,12}\.[0-9]{3})\s*")
_END = "# beeyard end"


class Block(msgspec.Struct, frozen=True):
    """A manager's list in a file."""

    until_s: float  # by the wall clock
    entries: tuple[str, ...]


def split(text: str) -> tuple[str, dict[str, Block]]:
    """What others wrote, and the blocks by owner. A block without its end reaches to the next one or to the end."""
    others: list[str] = []
    blocks: dict[str, Block] = {}
    head: re.Match[str] | None = None
    lines: list[str] = []

    def close() -> None:
        if head is not None:
            blocks[head[1]] = Block(float(head[2]), legible("\n".join(lines).encode()))

    for line in text.removesuffix("\n").split("\n") if text else ():
        found = _HEAD.fullmatch(line)
        if found or line.strip() == _END:
            close()
            head, lines = found, []
        elif head is not None:
            lines.append(line)
        else:
            others.append(line)
    close()
    return "".join(f"{line}\n" for line in others), blocks


def joined(others: str, blocks: dict[str, Block]) -> bytes:
    """The file."""
    parts = [others.encode("utf-8", "surrogateescape")]
    for owner, block in sorted(blocks.items()):
        parts.append(f"# beeyard list {owner} until {block.until_s:.3f}\n".encode())
        parts.append(written(block.entries))
        parts.append(f"{_END}\n".encode())
    return b"".join(parts)


class FileBackend:
    """`Backend` in a file."""

    def __init__(self, path: str, files: Files, servers: ListServers, wall_now_s: Callable[[], float]) -> None:
        self._path = path
        self._files = files
        self._servers = servers
        self.wall_now_s = wall_now_s

    async def read(self) -> Contents:
        """See `Backend.read`."""
        return self._contents(await self._raw())

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`."""
        raw = await self._raw()
        contents = self._contents(raw)
        seen(contents)
        candidate = raw
        while True:
            await trio.sleep(LOOK_S)
            look = await self._raw()
            if look == candidate:
                raw = look
            candidate = look
            now = self._contents(raw)  # blocks run out although nothing is written
            if now != contents:
                contents = now
                seen(contents)

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`."""
        await trio.lowlevel.checkpoint()
        return _FileLease(self, owner, ttl_s)

    async def change(self, owner: str, block: Block | None) -> None:
        """Put a manager's block in place, or remove it."""
        now_s = self.wall_now_s()

        def change(raw: bytes | None) -> bytes:
            others, blocks = split((raw or b"").decode("utf-8", "surrogateescape"))
            alive = {name: found for name, found in blocks.items() if found.until_s > now_s and name != owner}
            return joined(others, alive | ({owner: block} if block is not None else {}))

        await self._servers.change_file(self._path, change)

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await trio.lowlevel.checkpoint()

    async def _raw(self) -> bytes:
        raw = await self._files.read(self._path)
        if raw is None:
            raise HostError(f"cannot read {self._path}: there is no such file")
        return raw

    def _contents(self, raw: bytes) -> Contents:
        others, blocks = split(raw.decode("utf-8", "replace"))
        now_s = self.wall_now_s()
        contents = {owner: block.entries for owner, block in blocks.items() if block.until_s > now_s}
        try:
            entries = tuple(dict.fromkeys(parse_list(others)))
        except InvalidSpec as error:
            raise HostError(f"{self._path}: {error}") from None
        return contents | ({OTHERS: entries} if entries else {})


class _FileLease:
    def __init__(self, file: FileBackend, owner: str, ttl_s: float) -> None:
        self._file = file
        self._owner = owner
        self._ttl_s = ttl_s
        self._entries: tuple[str, ...] | None = None

    async def put(self, entries: Sequence[str]) -> None:
        await self._file.change(self._owner, Block(self._file.wall_now_s() + self._ttl_s, tuple(entries)))
        self._entries = tuple(entries)

    async def renew(self) -> None:
        if self._entries is not None:
            await self.put(self._entries)

    async def revoke(self) -> None:
        if self._entries is not None:
            await self._file.change(self._owner, None)


__all__ = ["Block", "FileBackend", "joined", "split"]
