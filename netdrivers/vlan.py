"""VLAN sub-interfaces of this host: a parent "eth0.100" is made on eth0 when a task needs it, and taken away again.

One that is there already is used as it is, and never taken away: what we made carries our group from its first moment on
(`link_groups.OWN_GROUP`), so that it is known as ours after a restart too. It has no addresses: the host itself takes no part
in the VLAN.
"""

from __future__ import annotations

import errno

from beeyard.core.errors import NetlinkError
from beeyard.core.network_options import VLAN_MAX, VLAN_MIN, Vlan
from beeyard.netdrivers import codec, own_links, refusal
from beeyard.netdrivers.changes import Change
from beeyard.netdrivers.own_links import find
from beeyard.runtime.host import Netlink
from beeyard.runtime.link_groups import OWN_GROUP

KIND = "vlan"  # as the kernel calls it
_WORDS = "beeyard VLAN"
_NAME_MAX = 15  # IFNAMSIZ without the terminating zero


async def ensure(netlink: Netlink, vlan: Vlan) -> bool:
    """Make sure that a sub-interface exists and, if it is ours, that it is up. Gives whether it is ours.

    Idempotent: yes. Callers see to it that nobody calls it twice at the same time.
    Cancellation: all or nothing.

    Raises:
        NetlinkError: names the interface and says what to do.
    """
    link, base = await find(netlink, vlan.name), await find(netlink, vlan.base)
    if link is None:
        _check_possible(vlan, base)
        assert base is not None
        link = await _create(netlink, vlan, base)
    _check_existing(vlan, link, base)
    if link.group != OWN_GROUP:
        return False
    mtu: list[Change] = []
    if base is not None and base.mtu != link.mtu:
        mtu = [Change(codec.set_mtu(link.index, base.mtu), f"give the MTU {base.mtu} of {vlan.base} to")]
    await own_links.bring_up(netlink, link, _WORDS, mtu)
    return True


async def remove(netlink: Netlink, name: str) -> bool:
    """Delete a sub-interface if it is ours; gives whether it was. See `own_links.remove`."""
    return await own_links.remove(netlink, name, KIND)


async def ours(netlink: Netlink) -> list[str]:
    """The names of all sub-interfaces that we made. See `own_links.ours`."""
    return [link.name for link in await own_links.ours(netlink, KIND)]


def _check_possible(vlan: Vlan, base: codec.LinkInfo | None) -> None:
    """Refuse what the kernel would, and what it would not but nobody can have meant."""
    if not VLAN_MIN <= vlan.id <= VLAN_MAX:
        raise _refused(errno.ERANGE, vlan, f"{vlan.id} is no VLAN id; use one from {VLAN_MIN} to {VLAN_MAX}")
    if base is None:
        advice = (
            f"it does not exist and neither does {vlan.base}, on which it could be made; give the pool another parent"
        )
        raise _refused(errno.ENODEV, vlan, advice)
    if base.kind == KIND:
        advice = f"{vlan.base} is a VLAN itself and no VLAN is made within another; make it by hand or use {vlan.base}"
        raise _refused(errno.EINVAL, vlan, advice)
    if len(vlan.name) > _NAME_MAX:
        advice = f"its name has more than {_NAME_MAX} characters; give {vlan.base} a shorter name"
        raise _refused(errno.ERANGE, vlan, advice)
    if not base.ethernet:
        raise _refused(errno.EINVAL, vlan, f"{vlan.base} is no Ethernet interface; give the pool another parent")
    if not base.up:
        raise _refused(errno.ENETDOWN, vlan, f"{vlan.base} is down; run: ip link set {vlan.base} up")


def _check_existing(vlan: Vlan, link: codec.LinkInfo, base: codec.LinkInfo | None) -> None:
    """Refuse a link of that name that is something else than its name says."""
    if link.kind != KIND:
        advice = (
            f"a link of this name exists that is no VLAN ({link.kind or 'a physical one'}); rename it or use another id"
        )
        raise _refused(errno.EEXIST, vlan, advice)
    elsewhere = link.parent_elsewhere or base is None or link.parent == base.index
    if link.vlan_id != vlan.id or not elsewhere:
        where = f" on {vlan.base}" if elsewhere else " on another interface"
        advice = f"a link of this name exists that is VLAN {link.vlan_id}{where}; rename it or use another id"
        raise _refused(errno.EEXIST, vlan, advice)
    if link.group == OWN_GROUP and base is not None and not base.up:
        raise _refused(errno.ENETDOWN, vlan, f"{vlan.base} is down; run: ip link set {vlan.base} up")


async def _create(netlink: Netlink, vlan: Vlan, base: codec.LinkInfo) -> codec.LinkInfo:
    try:
        await netlink.request(codec.create_vlan(name=vlan.name, parent=base.index, vlan_id=vlan.id, group=OWN_GROUP))
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise _of_creation(error, vlan) from error
        # Somebody else made it meanwhile, or has this VLAN under another name.
        link = await find(netlink, vlan.name)
        if link is None:
            advice = f"VLAN {vlan.id} of {vlan.base} exists under another name; use that name as the parent"
            raise _refused(errno.EEXIST, vlan, advice) from error
        return link
    link = await find(netlink, vlan.name)
    if link is None:
        raise _refused(errno.ENODEV, vlan, "it vanished meanwhile; the task has to start anew")
    return link


def _of_creation(error: OSError, vlan: Vlan) -> NetlinkError:
    code = error.errno or 0
    if code == errno.EOPNOTSUPP:
        return _refused(code, vlan, "this host's kernel cannot create VLAN sub-interfaces; run: modprobe 8021q")
    if code == errno.EPERM:
        return _refused(code, vlan, "the agent may not create links; run it as root")
    if code == errno.ENODEV:
        return _refused(code, vlan, f"{vlan.base} vanished meanwhile; the task has to start anew")
    return refusal.unexpected(error, "create", vlan.name)


def _refused(code: int, vlan: Vlan, advice: str) -> NetlinkError:
    return NetlinkError(code, "create", vlan.name, advice)


__all__ = ["ensure", "ours", "remove"]
