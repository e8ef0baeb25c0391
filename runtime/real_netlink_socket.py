"""A route netlink socket of the real kernel. Standard library alone: the zygote's helper uses it too."""

from __future__ import annotations

import os
import socket
import struct

from beeyard.runtime import netlink_format as nl

_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
# The kernel fills dumps up to 32 KiB a message block when the reader offers as much; smaller only costs more calls.
_RECEIVE_BYTES = 65536
# The kernel says when a list changed while it was read.
_DUMP_TRIES = 5
# Longer than any answer takes; it only turns a kernel that breaks its rules into an error instead of a hang.
_ANSWER_S_MAX = 5
_GETS = (nl.RTM_GETLINK, nl.RTM_GETADDR, nl.RTM_GETROUTE)
_SEQUENCE_AT = 8  # in the header
_I32 = struct.Struct("=i")


class NetlinkSocket:
    """A netlink socket of the namespace in which it is made, of routes if nothing else is said, for one request at a time.

    Nothing here awaits: the kernel has put its answer into the socket when `send` returns, and computes the rest of a
    dump inside `recv`. So requests of many tasks never mix, and one that was sent is always known to have worked or not.
    """

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_S_MAX, 0))
        self._sequence = 0

    def close(self) -> None:
        """Give the socket back, and with it its hold on the namespace."""
        self._socket.close()

    def request(self, message: bytes) -> list[bytes]:
        """Send the requests of `message` one by one; the first that fails ends it."""
        replies: list[bytes] = []
        at = position = 0
        while at < len(message):
            length, kind, flags, _, _ = nl.HEADER.unpack_from(message, at)
            one = bytearray(message[at : at + length])
            try:
                replies += self._exchange(one, kind in _GETS and flags & nl.NLM_F_DUMP == nl.NLM_F_DUMP)
            except nl.RequestRefused as error:
                error.position = position
                raise
            at += length + 3 & ~3
            position += 1
        return replies

    def _exchange(self, request: bytearray, is_dump: bool) -> list[bytes]:
        for _ in range(_DUMP_TRIES):
            replies, interrupted = self._exchange_once(request)
            if not (is_dump and interrupted):
                break
        # A list that changes all the time is given as it was seen: a later event will bring the rest.
        return replies

    def _exchange_once(self, request: bytearray) -> tuple[list[bytes], bool]:
        self._sequence = self._sequence + 1 & 0xFFFFFFFF
        nl.U32.pack_into(request, _SEQUENCE_AT, self._sequence)
        self._socket.send(request)
        replies: list[bytes] = []
        interrupted = False
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            at = 0
            while at < len(data):
                length, kind, flags, sequence, _ = nl.HEADER.unpack_from(data, at)
                if sequence == self._sequence:
                    interrupted |= bool(flags & nl.NLM_F_DUMP_INTR)
                    if kind in (nl.NLMSG_ERROR, nl.NLMSG_DONE):
                        _raise_if_failed(data[at : at + length], kind, flags)
                        return replies, interrupted
                    replies.append(data[at : at + length])
                at += length + 3 & ~3


def _raise_if_failed(end: bytes, kind: int, flags: int) -> None:
    """Read the message that ends a request: zero or an error number below zero, then the request's header."""
    code = -_I32.unpack_from(end, nl.HEADER.size)[0]
    if code == 0:
        return
    said = ""
    if flags & nl.NLM_F_ACK_TLVS and kind == nl.NLMSG_ERROR:
        found = nl.attributes(end, nl.HEADER.size + 4 + nl.HEADER.size)
        said = nl.as_text(found.get(nl.NLMSGERR_ATTR_MSG, b""))
    raise nl.RequestRefused(code, said or os.strerror(code))
