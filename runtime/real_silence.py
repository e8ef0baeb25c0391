"""Take a task off the LAN from inside its network namespace, at once. Standard library alone: for a task's shim.

Setting a macvlan link down waits 16 ms for an RCU grace period while every other network change of the host waits too: a
hundred tasks that stop together would hold up all of them, and the agent's loop with them, for 1.4 s. Making the links
deaf and taking their addresses has the same effect on the LAN and takes half a millisecond a task. The links themselves
go with the namespace.
"""

from __future__ import annotations

import errno

from beeyard.runtime import netlink_format as nl
from beeyard.runtime.real_netlink_socket import NetlinkSocket

_ACK = nl.NLM_F_REQUEST | nl.NLM_F_ACK
_DUMP = nl.NLM_F_REQUEST | nl.NLM_F_DUMP


def silence_links() -> None:
    """No address of the calling thread's namespace answers any more, except on loopback. Idempotent: yes.

    Raises:
        OSError: the kernel refused; what was reached until then stays.
    """
    kernel = NetlinkSocket()
    try:
        everything = nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0)
        links = kernel.request(nl.message(nl.RTM_GETLINK, _DUMP, everything))
        addresses = kernel.request(nl.message(nl.RTM_GETADDR, _DUMP, nl.ADDRESS_BODY.pack(0, 0, 0, 0, 0)))
        silenced = [index for link in links if (index := _silence_link(kernel, link))]
        for address in addresses:
            _delete_address(kernel, address, silenced)
    finally:
        kernel.close()


def _silence_link(kernel: NetlinkSocket, described: bytes) -> int:
    """Make a link deaf; gives its index, or 0 for the loopback."""
    _, _, index, flags, _ = nl.LINK_BODY.unpack_from(described, nl.HEADER.size)
    if flags & nl.IFF_LOOPBACK:
        return 0
    found = nl.attributes(described, nl.HEADER.size + nl.LINK_BODY.size)
    kind = nl.as_text(nl.attributes(found.get(nl.IFLA_LINKINFO, b"")).get(nl.IFLA_INFO_KIND, b""))
    if kind == "macvlan":
        # Source mode hears listed senders only, and none are listed.
        mode = nl.attribute(nl.IFLA_INFO_DATA, nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["source"]))
        info = nl.attribute(nl.IFLA_LINKINFO, nl.attribute(nl.IFLA_INFO_KIND, b"macvlan") + mode)
        request = nl.message(nl.RTM_NEWLINK, _ACK, nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, 0, 0) + info)
    else:
        request = nl.message(nl.RTM_SETLINK, _ACK, nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, 0, nl.IFF_UP))
    _unless_gone(kernel, request)
    return int(index)


def _delete_address(kernel: NetlinkSocket, described: bytes, links: list[int]) -> None:
    """Delete an address of one of the links; the description of an address is also the request that deletes it."""
    body = described[nl.HEADER.size :]
    family, prefix_length, _, _, index = nl.ADDRESS_BODY.unpack_from(body)
    if index not in links:
        return
    found = nl.attributes(body, nl.ADDRESS_BODY.size)
    local = nl.attribute(nl.IFA_LOCAL, found.get(nl.IFA_LOCAL) or found[nl.IFA_ADDRESS])
    request = nl.ADDRESS_BODY.pack(family, prefix_length, 0, 0, index) + local
    _unless_gone(kernel, nl.message(nl.RTM_DELADDR, _ACK, request))


def _unless_gone(kernel: NetlinkSocket, request: bytes) -> None:
    try:
        kernel.request(request)
    except nl.RequestRefused as error:
        # Gone meanwhile, or taken away with an address of the same subnet: what was wanted.
        if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL):
            raise
