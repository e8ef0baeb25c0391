"""Links that this software makes in the host's namespace beside a parent, and takes away again: found, raised, deleted.

They carry our group from their first moment on, so that they are known as ours after a restart too; what is not marked so is
never touched. A VLAN sub-interface and a host-side link are told apart by their kind.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence

import trio

from beeyard.netdrivers import codec, refusal
from beeyard.netdrivers.changes import Change, make
from beeyard.runtime.host import Netlink
from beeyard.runtime.link_groups import OWN_GROUP


async def find(netlink: Netlink, name: str) -> codec.LinkInfo | None:
    """A link of this host by its name, whoever made it.

    Raises:
        NetlinkError: the kernel refused to tell.
    """
    try:
        (link,) = codec.read_links(await netlink.request(codec.get_link(name=name)))
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ERANGE):  # missing, or a name that no link can have
            return None
        raise refusal.unexpected(error, "describe", name) from error
    return link


def is_ours(link: codec.LinkInfo, kind: str) -> bool:
    """Whether a link of the host is one of this kind that we made."""
    return link.kind == kind and link.group == OWN_GROUP


async def ours(netlink: Netlink, kind: str) -> list[codec.LinkInfo]:
    """All links of a kind that we made.

    Raises:
        NetlinkError: the kernel refused to tell.
    """
    try:
        links = codec.read_links(await netlink.request(codec.dump_links()))
    except OSError as error:
        raise refusal.of_host(error) from error
    return [link for link in links if is_ours(link, kind)]


async def bring_up(netlink: Netlink, link: codec.LinkInfo, words: str, more: Sequence[Change] = ()) -> None:
    """Describe a link of ours in words, let it have no address of the kernel's own making and hear no router, and raise it.

    Args:
        more: changes that come first.

    Raises:
        NetlinkError: names the interface and says what to do. A link that was down is deleted again then.
    """
    changes = [
        *more,
        Change(codec.describe_link(link.index, words), "describe"),
        Change(codec.forbid_own_addresses(link.index), "forbid addresses of its own to", (errno.EAFNOSUPPORT,)),
        Change(codec.set_link_up(link.index), "raise"),
    ]
    try:
        # A router must not give the host addresses there.
        async with netlink.netns_fd("", settings={f"ipv6/conf/{link.name}/accept_ra": "0"}):
            pass
        await make(netlink, changes, lambda error, what: refusal.unexpected(error, what, link.name))
    except BaseException as error:
        if not link.up:
            # Safety: bounded, as the kernel answers each request while it is sent.
            with trio.CancelScope(shield=True), contextlib.suppress(OSError):
                await netlink.request(codec.delete_link(link.index))
        if isinstance(error, OSError):
            raise refusal.of_setting(error, "create", link.name) from error
        raise


async def remove(netlink: Netlink, name: str, kind: str) -> bool:
    """Delete a link if it is of this kind and ours; gives whether it was. One that is gone is fine.

    Raises:
        NetlinkError: the kernel refused.
    """
    link = await find(netlink, name)
    if link is None or not is_ours(link, kind):
        return False
    try:
        await netlink.request(codec.delete_link(link.index))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise refusal.unexpected(error, "delete", name) from error
    return True


__all__ = ["bring_up", "find", "is_ours", "ours", "remove"]
