"""What the kernel's error numbers mean at each step of an attachment, as sentences that say what to do. Pure.

The extended message of the kernel, when there is one, is the error's `strerror`; it is kept for the cases that no rule
here knows.
"""

from __future__ import annotations

import errno
import os

from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.netdrivers.codec import Address, LinkInfo

_MTU_MIN = 68  # of every Ethernet link. Source: ETH_MIN_MTU, RFC 791.


def of_namespace(error: OSError, netns: str, interface: str) -> NetlinkError:
    """The task's namespace could not be entered or prepared."""
    code = error.errno or 0
    if isinstance(error, FileNotFoundError) or code == errno.EINVAL:
        advice = f"the network namespace {netns} is gone; the task has to start anew"
    elif code in (errno.EROFS, errno.EACCES):
        advice = _not_written(error)
    elif code in (errno.EMFILE, errno.ENFILE):
        advice = "too many files are open on this host; raise LimitNOFILE of the agent"
    else:
        advice = _unexpected(error)
    return NetlinkError(code, "attach", interface, advice)


def of_parent(error: OSError, grant: AddressGrant) -> NetlinkError:
    """The parent could not be described."""
    if error.errno == errno.ENODEV:
        advice = (
            f"this host has no such interface; create it, or give pool {grant.pool_name} another parent (-o parent=…)"
        )
    else:
        advice = _unexpected(error)
    return NetlinkError(error.errno or 0, "use parent", grant.parent, advice)


def parent_down(grant: AddressGrant) -> NetlinkError:
    """The parent is there, but nobody has set it up."""
    advice = f"the interface is down; run: ip link set {grant.parent} up"
    return NetlinkError(errno.ENETDOWN, "use parent", grant.parent, advice)


def mtu_too_large(grant: AddressGrant, parent_mtu: int) -> NetlinkError:
    """A link cannot carry larger packets than its parent (macvlan is refused by the kernel, ipvlan would lose them)."""
    advice = f"its MTU is {parent_mtu} and pool {grant.pool_name} asks for {grant.mtu}; lower one or raise the other"
    return NetlinkError(errno.EINVAL, "use parent", grant.parent, advice)


def mac_of_passthru(grant: AddressGrant, parent: LinkInfo) -> NetlinkError:
    """A link that has its parent for itself has the parent's MAC address."""
    advice = f"macvlan mode passthru keeps the MAC address {parent.mac} of the parent; {grant.mac} is not possible"
    return NetlinkError(errno.EINVAL, "use parent", grant.parent, advice)


def host_would_be_cut_off(grant: AddressGrant, own: str) -> NetlinkError:
    """A link that has its parent for itself receives everything that is sent to the host too."""
    advice = (
        f"the host has its own address {own} on it, which macvlan mode passthru would cut off; "
        "use an interface without addresses or another mode"
    )
    return NetlinkError(errno.EBUSY, "use parent", grant.parent, advice)


def address_in_use(address: str, interface: str) -> NetlinkError:
    """Another link of the task's namespace already has an address of the grant."""
    advice = "the task's namespace already has this address; attach each address once"
    return NetlinkError(errno.EEXIST, f"add address {address} to", interface, advice)


def of_creation(error: OSError, grant: AddressGrant, interface: str, parent: LinkInfo) -> NetlinkError:
    """The link could not be created."""
    code = error.errno or 0
    if code == errno.EOPNOTSUPP and grant.mode == "l3s":
        advice = "this host's kernel cannot create ipvlan links in mode l3s; run: modprobe ipvlan, or use mode l3"
    elif code == errno.EOPNOTSUPP:
        advice = f"this host's kernel cannot create {grant.driver} links; run: modprobe {grant.driver}"
    elif code == errno.EEXIST:
        advice = "the task's namespace already has an interface of this name; remove it or use another name"
    elif code == errno.EBUSY:
        return NetlinkError(code, "use parent", grant.parent, _taken(grant, parent))
    elif code == errno.ENODEV:
        return of_parent(error, grant)
    elif code == errno.EINVAL and not parent.ethernet:
        advice = f"{grant.driver} links need an Ethernet interface; give the pool another parent (-o parent=…)"
        return NetlinkError(code, "use parent", grant.parent, advice)
    elif code in (errno.EINVAL, errno.ERANGE) and grant.mtu and grant.mtu < _MTU_MIN:
        advice = f"MTU {grant.mtu} is not possible here ({_unexpected(error)}); use one from {_MTU_MIN} to {parent.mtu}"
    elif code == errno.EINVAL and grant.driver == "macvlan" and error.strerror == os.strerror(errno.EINVAL):
        # What is left of the kernel's reasons: see macvlan_common_newlink in drivers/net/macvlan.c.
        return NetlinkError(errno.EBUSY, "use parent", grant.parent, _not_alone(grant))
    elif code == errno.EADDRNOTAVAIL:
        advice = f"{grant.mac} cannot be a link's own MAC address; use a unicast one such as 02:42:0a:4d:00:40"
    elif code == errno.EPERM:
        advice = "the agent may not create links; run it as root"
    else:
        advice = _unexpected(error)
    return NetlinkError(code, "create", interface, advice)


def of_configuration(grant: AddressGrant, interface: str, error: OSError, what: str) -> NetlinkError:
    """A step after the creation failed; the link is deleted again."""
    code = error.errno or 0
    if isinstance(error, FileNotFoundError):
        advice = "the task's network namespace is gone; the task has to start anew"
    elif code == errno.EADDRINUSE and grant.driver == "ipvlan":
        advice = f"another ipvlan link on {grant.parent} already has this address; give each task its own"
    elif code == errno.EADDRINUSE:
        advice = f"another link on {grant.parent} already has the MAC address {grant.mac}; use another or none"
    elif code in (errno.EACCES, errno.EAFNOSUPPORT, errno.EOPNOTSUPP) and "address" in what:
        advice = "IPv6 is switched off on this host; set net.ipv6.conf.default.disable_ipv6 = 0 or use an IPv4 pool"
    elif code in (errno.ENETUNREACH, errno.EHOSTUNREACH) or (code == errno.EINVAL and "gateway" in what):
        advice = (
            f"it is not in the subnet of {' or '.join(grant.addresses)}; correct the gateway of pool {grant.pool_name}"
        )
    elif code == errno.EINVAL and "address" in what and grant.mtu and grant.mtu < 1280:
        advice = f"IPv6 needs an MTU of at least 1280 and pool {grant.pool_name} asks for {grant.mtu}"
    elif code == errno.ENODEV:
        advice = "the link vanished meanwhile; the task has to start anew"
    else:
        advice = _unexpected(error)
    return NetlinkError(code, what, interface, advice)


def of_announcement(error: OSError, interface: str, address: Address) -> NetlinkError:
    """The LAN could not be told of an address."""
    return NetlinkError(error.errno or 0, f"announce {address} from", interface, _unexpected(error))


def unexpected(error: OSError, operation: str, interface: str) -> NetlinkError:
    """The kernel refused something for a reason that nobody could foresee: its own words."""
    return NetlinkError(error.errno or 0, operation, interface, _unexpected(error))


def of_setting(error: OSError, operation: str, interface: str) -> NetlinkError:
    """A file below /proc/sys of this host could not be written."""
    return NetlinkError(error.errno or 0, operation, interface, _not_written(error))


def of_host(error: OSError) -> NetlinkError:
    """The host's own links could not be listed."""
    return NetlinkError(error.errno or 0, "list the links of", "this host", _unexpected(error))


def _taken(grant: AddressGrant, parent: LinkInfo) -> str:
    if parent.master:
        return "it belongs to a bridge or bond; use that as the parent, or take the interface out of it"
    other = "macvlan" if grant.driver == "ipvlan" else "ipvlan"
    return (
        f"links of another kind ({other}) already sit on it, which excludes {grant.driver}; "
        "use another parent or remove them"
    )


def _not_alone(grant: AddressGrant) -> str:
    if grant.mode == "passthru":
        return (
            "other macvlan links already sit on it and mode passthru needs it alone; use another parent or remove them"
        )
    return "a macvlan link in mode passthru has it for itself; use another parent or remove that link"


def _not_written(error: OSError) -> str:
    return f"{error.filename} cannot be written ({error.strerror}); let the agent run as root with /proc/sys writable"


def _unexpected(error: OSError) -> str:
    return f"the kernel said: {error.strerror or error}"
