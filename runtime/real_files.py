"""Small files on a real disk, in threads.

A replacement is written to one fixed temporary name beside the file, synced, renamed, and the directory synced: after a
power cut there is the old content or the new. A temporary file that a crash left is overwritten by the next replacement of
the same file, so none pile up; `list` does not show them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref

import trio

from beeyard.core.errors import DiskError


class RealFiles:
    """`Files` on the file system of this machine."""

    def __init__(self) -> None:
        # Two replacements of one file use the same temporary name, so they take turns.
        self._locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()

    async def read(self, path: str) -> bytes | None:
        """See `Files.read`."""
        return await trio.to_thread.run_sync(_read, path)

    async def replace(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """See `Files.replace`. Cancellation: once begun it is finished."""
        lock = self._locks.setdefault(path, trio.Lock())
        async with lock:
            await trio.to_thread.run_sync(_replace, path, data, mode)

    async def append(self, path: str, data: bytes) -> None:
        """See `Files.append`. Cancellation: once begun it is finished."""
        await trio.to_thread.run_sync(_append, path, data)

    async def remove(self, path: str) -> None:
        """See `Files.remove`."""
        lock = self._locks.setdefault(path, trio.Lock())
        async with lock:
            await trio.to_thread.run_sync(_remove, path)

    async def list(self, directory: str) -> list[str]:
        """See `Files.list`."""
        return await trio.to_thread.run_sync(_list, directory)


def _read(path: str) -> bytes | None:
    assert os.path.isabs(path), path
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error("read", path, error) from error


def _replace(path: str, data: bytes, mode: int) -> None:
    assert os.path.isabs(path), path
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.tmp")
    try:
        make_directories(directory)
        try:
            _write_synced(temporary, data, mode)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_directory(directory)
    except OSError as error:
        raise disk_error("write", path, error) from error


def _append(path: str, data: bytes) -> None:
    assert os.path.isabs(path), path
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        make_directories(os.path.dirname(path))
        with open(os.open(path, flags, 0o600), "ab") as file:
            file.write(data)
    except OSError as error:
        raise disk_error("write", path, error) from error


def _write_synced(path: str, data: bytes, mode: int) -> None:
    """Write a file of our own making and sync its content."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), mode)  # exactly this mode, whatever the umask is and whatever a crash left
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: str) -> None:
    assert os.path.isabs(path), path
    try:
        os.unlink(path)
        sync_directory(os.path.dirname(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error("remove", path, error) from error


def _list(directory: str) -> list[str]:
    assert os.path.isabs(directory), directory
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error("list", directory, error) from error
    return sorted(name for name in names if not (name.startswith(".") and name.endswith(".tmp")))


def make_directories(directory: str) -> None:
    """Make a directory and its parents durably, each readable by its owner alone when it is new."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    make_directories(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    sync_directory(parent)


def sync_directory(directory: str) -> None:
    """Make names in a directory survive a power cut."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def disk_error(operation: str, path: str, error: OSError) -> DiskError:
    """Our error for the system's, in a person's words."""
    words = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
    return DiskError(operation, path, words.get(error.errno or 0, error.strerror or str(error)))


__all__ = ["RealFiles", "disk_error", "make_directories", "sync_directory"]
