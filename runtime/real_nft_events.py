"""What the kernel tells of tables of nftables that were removed.

Whoever loads a firewall anew removes all tables first, those of others too. Looking now and then would find that late, and
until then what the table restricted is open.

Source: Linux include/uapi/linux/netfilter/nfnetlink.h, nf_tables.h; each table that goes is told to the group, also those of
`nft flush ruleset`.
"""

from __future__ import annotations

import errno
import socket

import structlog
import trio

from beeyard.runtime import netlink_format as nl

_NETLINK_NETFILTER = 12
_GROUP = 7  # NFNLGRP_NFTABLES
_REMOVED = 10 << 8 | 2  # NFNL_SUBSYS_NFTABLES, NFT_MSG_DELTABLE
_BODY_BYTES = 4  # struct nfgenmsg
_TABLE_NAME = 1  # NFTA_TABLE_NAME
_RECEIVE_BYTES = 1 << 16

log = structlog.get_logger(__name__)


class NftRemovals:
    """Hears of removed tables, from the first call of `wait` on."""

    def __init__(self) -> None:
        self._channel: trio.socket.SocketType | None = None

    async def wait(self, table: str) -> None:
        """Wait until a table of this name has been removed, or may have been; for ever when the kernel does not tell."""
        try:
            channel = self._channel = self._channel or await _opened()
        except OSError as error:
            log.info("removed firewall tables are found by looking alone", reason=str(error))
            await trio.sleep_forever()
        while True:
            try:
                data = await channel.recv(_RECEIVE_BYTES)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return  # there was more than could be kept: this may have been in it
            for message in nl.split(data):
                if message.type == _REMOVED and _name(message.payload) == table:
                    return


async def _opened() -> trio.socket.SocketType:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    try:
        channel.bind((0, 1 << _GROUP - 1))
    except OSError:
        channel.close()
        raise
    return trio.socket.from_stdlib_socket(channel)


def _name(payload: bytes) -> str:
    return nl.as_text(nl.attributes(payload, _BODY_BYTES).get(_TABLE_NAME, b""))


__all__ = ["NftRemovals"]
