"""The kinds of link that a grant may ask for: which modes there are, and what each means for its link. Pure.

macvlan bridge      tasks of one host reach each other directly
macvlan private     tasks of one host never reach each other
macvlan vepa        what tasks of one host say to each other goes out to the switch, which may send it back
macvlan passthru    one link has the parent for itself, with the parent's MAC address
ipvlan l2           as macvlan, but all links have the parent's MAC address
ipvlan l3, l3s      no ARP: the host routes; l3s passes its netfilter rules too
"""

from __future__ import annotations

import errno

from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import CHOICES, OPTION_IPVLAN_FLAG, OPTION_IPVLAN_MODE, OPTION_MODE, PASSTHRU
from beeyard.netdrivers import codec
from beeyard.runtime.netlink_format import mac_bytes

# The drivers' modes, as Docker names them.
MODES = {"macvlan": CHOICES[OPTION_MODE][1], "ipvlan": CHOICES[OPTION_IPVLAN_MODE][1]}
IPVLAN_FLAGS = CHOICES[OPTION_IPVLAN_FLAG][1]


def check(grant: AddressGrant, interface: str) -> None:
    """Refuse what no kernel could do, before anything is touched.

    Raises:
        NetlinkError: names the value and says which ones there are.
    """
    modes = MODES.get(grant.driver)
    if modes is None:
        advice = f"network driver {grant.driver} is not available on this host; use {' or '.join(MODES)}"
        raise NetlinkError(errno.EOPNOTSUPP, "attach", interface, advice)
    if grant.mode not in modes:
        advice = f"{grant.driver} mode {grant.mode} is not available; use one of {', '.join(modes)}"
        raise NetlinkError(errno.EINVAL, "attach", interface, advice)
    if grant.flag and (grant.driver != "ipvlan" or grant.flag not in IPVLAN_FLAGS):
        which = f"use one of {', '.join(IPVLAN_FLAGS)}" if grant.driver == "ipvlan" else "only ipvlan has flags"
        raise NetlinkError(
            errno.EINVAL, "attach", interface, f"{grant.driver} flag {grant.flag} is not available; {which}"
        )
    if grant.mac and grant.driver == "ipvlan":
        advice = (
            f"ipvlan links have their parent's MAC address and cannot have {grant.mac}; leave it out or use macvlan"
        )
        raise NetlinkError(errno.EINVAL, "attach", interface, advice)
    if grant.mac:
        _check_mac(grant.mac, interface)


def _check_mac(mac: str, interface: str) -> None:
    try:
        mac_bytes(mac)
    except ValueError:
        advice = f"{mac} is not a MAC address; give six bytes such as 02:42:0a:4d:00:40"
        raise NetlinkError(errno.EINVAL, "attach", interface, advice) from None


def is_passthru(grant: AddressGrant) -> bool:
    """Whether the link takes its parent for itself."""
    return grant.driver == "macvlan" and grant.mode == PASSTHRU


def shares_mac(grant: AddressGrant) -> bool:
    """Whether the link has its parent's MAC address."""
    return grant.driver == "ipvlan" or is_passthru(grant)


def creation(grant: AddressGrant, *, name: str, index: int, parent: int, netns_fd: int) -> bytes:
    """The request that creates the link of a grant that was checked."""
    if grant.driver == "ipvlan":
        return codec.create_ipvlan(
            name=name,
            index=index,
            parent=parent,
            netns_fd=netns_fd,
            mode=grant.mode,
            flag=grant.flag,
            mtu=grant.mtu,
        )
    return codec.create_macvlan(
        name=name, index=index, parent=parent, netns_fd=netns_fd, mode=grant.mode, mac=grant.mac, mtu=grant.mtu
    )
