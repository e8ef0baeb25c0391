"""Several changes in one call."""

from __future__ import annotations

import errno

import pytest

from beeyard.core.errors import NetlinkError
from beeyard.netdrivers import refusal
from beeyard.netdrivers.changes import Change, make
from beeyard.runtime.fake_kernel import FakeKernel


class DeafKernel(FakeKernel):
    """One that cannot be asked at all, as on a host without memory."""

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        raise OSError(errno.ENOBUFS, "No buffer space available")


async def test_a_kernel_that_cannot_be_asked_is_an_error_of_this_host():
    """As any other refusal: who insists on undoing something tries again after one, and after no other error."""
    changes = [Change(b"", "raise"), Change(b"", "describe")]
    with pytest.raises(NetlinkError, match=r"raise eth0.*No buffer space available"):
        await make(DeafKernel(), changes, lambda error, what: refusal.unexpected(error, what, "eth0"))
