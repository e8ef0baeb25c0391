"""The ports to this host's kernel. See `runtime.host`, which has the whole list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Netlink(Protocol):
    """Route netlink of this host. `netns` is "" for the daemon's own namespace, else a path such as /proc/71/ns/net."""

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        """Send one or more concatenated requests (each with NLM_F_ACK or a dump) and return the replies' messages.

        Sequence numbers are filled in here. All or nothing is the caller's business: the requests run in order and the
        first that fails ends the call. Cancellation: before anything is sent, or not at all.

        Raises:
            RequestRefused: the kernel's errno for the request that failed; `strerror` holds its extended message if any.
            FileNotFoundError: the namespace is gone.
        """

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        """Send one Ethernet frame from an interface in a namespace (gratuitous ARP, unsolicited NA)."""

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int = 1,
        groups: Sequence[bytes] = (),
    ) -> bytes | None:
        """Send Ethernet frames from an interface of the host's own namespace and give the first frame that answers.

        Only frames that come in are looked at, never what this host sends, and of these only those with the Ethernet type
        of a frame that is sent; of IPv6 only neighbour solicitations and advertisements. Many may ask at once, cheaply.
        Cancellation: at any time; nothing is left open.

        Args:
            is_answer: pure, quick, and it never raises; it is shown every such frame that comes in, whoever it is meant for.
            wait_s: how long to wait in all.
            times: how often the frames are sent, evenly over `wait_s`.
            groups: multicast MAC addresses that the interface must take meanwhile, for IPv6.

        Returns:
            The whole frame, or None when nothing answered.

        Raises:
            OSError: ENODEV there is no such interface; ENETDOWN it is down, or went down meanwhile.
        """

    def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AbstractAsyncContextManager[int]:
        """A number that stands for the namespace in IFLA_NET_NS_FD, valid inside the context.

        Inside it, calls for the same namespace cost less; outside, nothing keeps the namespace alive.

        Args:
            settings: files below /proc/sys/net of that namespace to write on entry, such as
                {"ipv6/conf/default/accept_ra": "0"}; those that this kernel does not have are skipped.
            frames: whether `send_frame` will be called inside, so that all is opened at once.

        Raises:
            FileNotFoundError: the namespace is gone.
            OSError: it cannot be entered, or a setting cannot be written (`filename` names it).
        """


__all__ = ["Netlink"]
