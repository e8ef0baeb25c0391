"""Several changes of one namespace in one call to the kernel, each with words for the case that it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from beeyard.runtime.host import Netlink, RequestRefused


class Change(NamedTuple):
    """One request, what it does in words, and the error numbers that do not matter."""

    request: bytes
    what: str
    may_fail_with: tuple[int, ...] = ()


async def make(
    netlink: Netlink,
    changes: Sequence[Change],
    refused: Callable[[OSError, str], Exception],
    netns: str = "",
) -> list[bytes]:
    """Send all changes, past those whose failure does not matter; gives the replies of the last call.

    Raises:
        Exception: what `refused` makes of the kernel's error and the words of the change.
    """
    while True:
        try:
            return await netlink.request(b"".join(change.request for change in changes), netns)
        except RequestRefused as error:
            failed = changes[error.position]
            if error.errno not in failed.may_fail_with:
                raise refused(error, failed.what) from error
            changes = changes[error.position + 1 :]
        except OSError as error:  # it could not even be asked: nothing says how far it came
            raise refused(error, changes[0].what) from error


__all__ = ["Change", "make"]
