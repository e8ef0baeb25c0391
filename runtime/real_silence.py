"""Take a task off the LAN from inside its network namespace, at once, when its shim is gone. Standard library alone."""

from __future__ import annotations

import contextlib

from beeyard.runtime import silence
from beeyard.runtime.netlink_format import RequestRefused
from beeyard.runtime.real_netlink_socket import NetlinkSocket


def silence_links() -> None:
    """No address of the calling thread's namespace answers any more, except on loopback. Idempotent: yes.

    Raises:
        OSError: the kernel refused; what was reached until then stays.
    """
    kernel = NetlinkSocket()
    conversation = silence.conversation()
    with contextlib.closing(kernel), contextlib.suppress(StopIteration):  # that is when all is said
        message = next(conversation)
        while True:
            try:
                replies = kernel.request(message)
            except RequestRefused as error:
                message = conversation.throw(error)
            else:
                message = conversation.send(replies)
