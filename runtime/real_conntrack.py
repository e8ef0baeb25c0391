"""Ends flows that the kernel tracks and that would go on to where a published port led before. Standard library alone.

Each flow is translated as its first packet was, for as long as it goes on: a client that keeps sending datagrams would reach
a task that is over, or nothing where there was none yet, and never the new task. The kernel lists all flows, 1 µs each; what
can match is found by its bytes before it is taken apart.

Source: Linux include/uapi/linux/netfilter/nfnetlink_conntrack.h, nfnetlink.h.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence

from beeyard.runtime import netlink_format as nl
from beeyard.runtime.host_ports import Forward

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 1 << 8
_NEW, _GET, _DELETE = _SUBSYSTEM | 0, _SUBSYSTEM | 1, _SUBSYSTEM | 2
# struct nfgenmsg: family, version, resource.
_BODY = struct.Struct("=BBH")
_TUPLE_ORIG, _TUPLE_REPLY, _ZONE = 1, 2, 18
_TUPLE_IP, _TUPLE_PROTO = 1, 2
_V4_SRC, _V4_DST, _V6_SRC, _V6_DST = 1, 2, 3, 4
_PROTO_NUMBER, _PROTO_SRC_PORT, _PROTO_DST_PORT = 1, 2, 3
_NESTED = 0x8000
_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_RECEIVE_BYTES = 1 << 16
_ANSWER_S_MAX = 5


def forget(forwards: Sequence[Forward]) -> int:
    """End the flows that these forwards should have from now on; gives how many were ended. Blocks: run it in a thread.

    Those are the flows to an address of theirs that began before, and those of datagrams to a published port that were not
    translated at all, or to another task. Flows that others translate are left alone.

    Raises:
        OSError: the kernel does not tell.
    """
    n_ended = 0
    for family, version in ((socket.AF_INET, 4), (socket.AF_INET6, 6)):
        ours = [f for f in forwards if ipaddress.ip_address(f.address).version == version]
        if ours:
            n_ended += _forget(family, ours)
    return n_ended


def _forget(family: int, forwards: Sequence[Forward]) -> int:
    addresses = {ipaddress.ip_address(f.address).packed for f in forwards}
    datagrams = {(_PROTOCOLS[f.protocol], f.published) for f in forwards if f.protocol == "udp"}
    needles = [*addresses, *(_port_attribute(port) for _, port in datagrams)]
    n_ended = 0
    with _opened() as channel:
        channel.send(nl.message(_GET, nl.NLM_F_REQUEST | nl.NLM_F_DUMP, _BODY.pack(family, 0, 0), 1))
        stale = []
        for flow in _replies(channel):
            if any(needle in flow for needle in needles):
                found = nl.attributes(flow, _BODY.size)
                if _is_stale(found, addresses, datagrams):
                    stale.append(found)
        for found in stale:
            parts = nl.attribute(_TUPLE_ORIG | _NESTED, found[_TUPLE_ORIG])
            if _ZONE in found:
                parts += nl.attribute(_ZONE, found[_ZONE])
            message = nl.message(_DELETE, nl.NLM_F_REQUEST | nl.NLM_F_ACK, _BODY.pack(family, 0, 0) + parts, 2)
            channel.send(message)
            try:
                _replies(channel)
            except FileNotFoundError:
                continue  # it ended by itself
            n_ended += 1
    return n_ended


def _is_stale(found: dict[int, bytes], addresses: set[bytes], datagrams: set[tuple[int, int]]) -> bool:
    if _TUPLE_ORIG not in found or _TUPLE_REPLY not in found:
        return False
    orig, reply = _read_tuple(found[_TUPLE_ORIG]), _read_tuple(found[_TUPLE_REPLY])
    if reply.source in addresses:
        return True
    # Where the reply goes elsewhere than to who asked, somebody else has translated its source.
    to_port = (orig.protocol, orig.port) in datagrams and reply.destination == orig.source
    return to_port and _is_local(orig.destination)


def _is_local(packed: bytes) -> bool:
    """Whether an address is this host's own: only those can be bound."""
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.bind((socket.inet_ntop(family, packed), 0))
        except OSError:
            return False
    return True


class _Tuple:
    """One direction of a flow."""

    def __init__(self, source: bytes, destination: bytes, protocol: int, port: int) -> None:
        self.source = source
        self.destination = destination
        self.protocol = protocol
        self.port = port  # the destination's


def _read_tuple(data: bytes) -> _Tuple:
    parts = nl.attributes(data)
    ip, protocol = nl.attributes(parts.get(_TUPLE_IP, b"")), nl.attributes(parts.get(_TUPLE_PROTO, b""))
    port = protocol.get(_PROTO_DST_PORT, b"\0\0")
    return _Tuple(
        ip.get(_V4_SRC) or ip.get(_V6_SRC) or b"",
        ip.get(_V4_DST) or ip.get(_V6_DST) or b"",
        (protocol.get(_PROTO_NUMBER) or b"\0")[0],
        int.from_bytes(port, "big"),
    )


def _port_attribute(port: int) -> bytes:
    return nl.ATTRIBUTE.pack(6, _PROTO_DST_PORT) + port.to_bytes(2, "big")


def _opened() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_S_MAX, 0))
    return channel


def _replies(channel: socket.socket) -> list[bytes]:
    """What the kernel answers, up to its last word."""
    payloads: list[bytes] = []
    while True:
        for message in nl.split(channel.recv(_RECEIVE_BYTES)):
            if message.type == nl.NLMSG_DONE:
                return payloads
            if message.type == nl.NLMSG_ERROR:
                code = -struct.unpack_from("=i", message.payload)[0]
                if code == errno.ENOENT:
                    raise FileNotFoundError(code, os.strerror(code))
                if code:
                    raise OSError(code, os.strerror(code))
                return payloads
            payloads.append(message.payload)


__all__ = ["forget"]
