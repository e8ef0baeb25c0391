"""Servers where lists of nodes are published, as this machine reaches them, and files that its daemons share."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence

import trio

from beeyard.core.errors import DiskError
from beeyard.runtime.host_lists import ClientTls, HttpClient, ZooKeeper
from beeyard.runtime.real_files import disk_error, make_directories, sync_directory

# For which another daemon may hold a shared file: it takes milliseconds, on a disk that is stuck longer.
LOCK_S = 3.0
LOOK_S = 0.02


class RealListServers:
    """`ListServers` of this machine. The libraries are loaded when they are asked for: few managers need them."""

    def http(self, tls: ClientTls | None = None) -> HttpClient:
        """See `ListServers.http`."""
        from beeyard.runtime.real_http_client import RealHttpClient

        return RealHttpClient(tls)

    def zookeeper(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> ZooKeeper:
        """See `ListServers.zookeeper`."""
        from beeyard.runtime.real_zookeeper import RealZooKeeper

        return RealZooKeeper(servers, session_s, tls)

    async def change_file(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """See `ListServers.change_file`. Cancellation: once begun it is finished."""
        await trio.to_thread.run_sync(_change, path, change)


def _change(path: str, change: Callable[[bytes | None], bytes]) -> None:
    assert os.path.isabs(path), path
    try:
        make_directories(os.path.dirname(path))
        # The lock is a file of its own and stays: the list itself is replaced, and a lock on what was replaced locks nothing.
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor, path)
            _change_locked(path, change)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise disk_error("change", path, error) from error


def _lock(descriptor: int, path: str) -> None:
    deadline_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline_s:
                raise DiskError("change", path, f"somebody has held {path}.lock for {LOCK_S:.0f} s") from error
        time.sleep(LOOK_S)


def _change_locked(path: str, change: Callable[[bytes | None], bytes]) -> None:
    before: bytes | None = None
    mode = 0o644  # what is published is for everybody on this machine to read
    try:
        with open(path, "rb") as file:
            before = file.read()
            mode = os.fstat(file.fileno()).st_mode & 0o7777
    except FileNotFoundError:
        before = None
    after = change(before)
    if after == before:
        return
    temporary = f"{path}.new"
    with open(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb"
    ) as file:
        os.fchmod(file.fileno(), mode)
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


__all__ = ["RealListServers"]
