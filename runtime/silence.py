"""Take the links of a network namespace off the LAN at once: what to ask the kernel, and what its answers lead to. Pure.

Theory of operation
-------------------
Setting a macvlan link down waits 16 ms for an RCU grace period while every other network change of the host waits too: a
hundred tasks that stop together would hold up all of them for 1.5 s. Making the links deaf and taking their addresses has
the same effect on the LAN and takes a fraction of a millisecond. The links themselves go with the namespace, which the
kernel does in one batch and on its own time.

A link is made deaf first, then loses its addresses, so that nothing answers from the first step on:

    macvlan            enters the mode in which it hears listed senders only
    macvlan passthru   cannot leave its mode, and is deleted: it is the only one on its parent, which is free at once
    ipvlan             has no way to be deaf alone; the parent delivers by address, so that one it lost is not reached
    others             are set down

The agent (`netdrivers.driver.detach`) and who ends what a killed shim left (`runtime.real_silence`) have this conversation,
each over its own socket: whoever has it sends each message that `conversation` yields and gives back the replies, or throws
the refusal in. A shim has the same one in C (`agent/executors/process/native/silence.c`).
Standard library alone.
"""

from __future__ import annotations

import errno
from collections.abc import Generator

from beeyard.runtime import netlink_format as nl

_ACK = nl.NLM_F_REQUEST | nl.NLM_F_ACK
_DUMP = nl.NLM_F_REQUEST | nl.NLM_F_DUMP
_ALL_LINKS = nl.message(
    nl.RTM_GETLINK,
    _DUMP,
    nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0) + nl.u32(nl.IFLA_EXT_MASK, nl.RTEXT_FILTER_SKIP_STATS),
)
_ALL_ADDRESSES = nl.message(nl.RTM_GETADDR, _DUMP, nl.ADDRESS_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0))
# Source mode hears listed senders only, and none are listed.
_DEAF = nl.attribute(
    nl.IFLA_LINKINFO,
    nl.attribute(nl.IFLA_INFO_KIND, b"macvlan")
    + nl.attribute(nl.IFLA_INFO_DATA, nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["source"])),
)
# Gone meanwhile, or taken away with an address of the same subnet: what was wanted.
_GONE = (errno.ENODEV, errno.EADDRNOTAVAIL)


# Yields messages, is sent their replies.
Conversation = Generator[bytes, list[bytes], None]


def conversation() -> Conversation:
    """Messages for a route netlink socket in the namespace; at the end no address answers but on loopback.

    Idempotent: yes.

    Raises:
        RequestRefused: one that was thrown in and matters; what was reached until then stays.
    """
    links = yield _ALL_LINKS
    addresses = yield _ALL_ADDRESSES
    requests: list[bytes] = []
    for link in links:
        _, _, index, flags, _ = nl.LINK_BODY.unpack_from(link, nl.HEADER.size)
        if not flags & nl.IFF_LOOPBACK:
            requests += _deafen(link, index)
            requests += [_delete(address) for address in addresses if _index_of(address) == index]
    while requests:
        try:
            yield b"".join(requests)
            return
        except nl.RequestRefused as error:
            if error.errno not in _GONE:
                raise
            requests = requests[error.position + 1 :]


def _deafen(described: bytes, index: int) -> list[bytes]:
    found = nl.attributes(described, nl.HEADER.size + nl.LINK_BODY.size)
    info = nl.attributes(found.get(nl.IFLA_LINKINFO, b""))
    kind = nl.as_text(info.get(nl.IFLA_INFO_KIND, b""))
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, 0, 0)
    if kind == "ipvlan":
        return []
    if kind == "macvlan" and _is_passthru(info):
        return [nl.message(nl.RTM_DELLINK, _ACK, body)]
    if kind == "macvlan":
        return [nl.message(nl.RTM_NEWLINK, _ACK, body + _DEAF)]
    return [nl.message(nl.RTM_SETLINK, _ACK, nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, 0, nl.IFF_UP))]


def _is_passthru(info: dict[int, bytes]) -> bool:
    mode = nl.attributes(info.get(nl.IFLA_INFO_DATA, b"")).get(nl.IFLA_MACVLAN_MODE)
    return mode is not None and nl.as_u32(mode) == nl.MACVLAN_MODES["passthru"]


def _index_of(address: bytes) -> int:
    index: int = nl.ADDRESS_BODY.unpack_from(address, nl.HEADER.size)[4]
    return index


def _delete(described: bytes) -> bytes:
    """The description of an address is also what deletes it."""
    body = described[nl.HEADER.size :]
    family, prefix_length, _, _, index = nl.ADDRESS_BODY.unpack_from(body)
    found = nl.attributes(body, nl.ADDRESS_BODY.size)
    local = nl.attribute(nl.IFA_LOCAL, found.get(nl.IFA_LOCAL) or found[nl.IFA_ADDRESS])
    return nl.message(nl.RTM_DELADDR, _ACK, nl.ADDRESS_BODY.pack(family, prefix_length, 0, 0, index) + local)


__all__ = ["Conversation", "conversation"]
