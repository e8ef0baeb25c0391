"""A task's output, kept in a file of bounded size."""

from __future__ import annotations

import os


class Output:
    """Takes bytes from a pipe to a log file, turning it over to `PATH.1` at a size."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._file = self._open()
        self.fd, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)

    def close_writer(self) -> None:
        """Leave the writing end to the task alone."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def take(self) -> bool:
        """Take over what is there, at most 64 KiB; False when the task has no writing end any more.

        A full disk loses output, not the task.
        """
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return True
        if data:
            try:
                os.write(self._file, data)
                if os.fstat(self._file).st_size >= self._bytes_max:
                    os.rename(self._path, f"{self._path}.1")
                    os.close(self._file)
                    self._file = self._open()
            except OSError:
                pass
        return bool(data)

    def drain(self) -> None:
        """Take over what is left in the pipe after the task ended."""
        for _ in range(64):  # a pipe holds at most 1 MiB
            before = os.fstat(self._file).st_size
            if not self.take() or os.fstat(self._file).st_size == before:
                return


__all__ = ["Output"]
