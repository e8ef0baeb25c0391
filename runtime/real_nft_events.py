"""What the kernel tells of changes of tables of nftables.

Whoever loads a firewall anew removes all tables first, those of others too, and somebody may take out a rule. Looking now and
then would find that late, and until then what the table restricted is open.

Source: Linux include/uapi/linux/netfilter/nfnetlink.h, nf_tables.h; each table, chain, rule, set and element that comes or
goes is told to the group with the name of its table, also those of `nft flush ruleset`.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import trio

from beeyard.runtime import netlink_format as nl

_NETLINK_NETFILTER = 12
_GROUP = 7  # NFNLGRP_NFTABLES
_SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES
_NEW_GENERATION = 15  # NFT_MSG_NEWGEN, which ends a transaction and names no table
_BODY_BYTES = 4  # struct nfgenmsg
_TABLE_NAME = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE, NFTA_SET_ELEM_LIST_TABLE
_RECEIVE_BYTES = 1 << 16

log = structlog.get_logger(__name__)


class NftChanges:
    """Hears of changes, from the first call of `wait` on."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._watched: dict[str, bool] = {}  # by name of a table that was asked for: whether it has changed
        self._lost = False  # there was more than could be kept
        self._n_own = 0  # changes of our own that are under way
        self._own_ended = trio.Event()

    async def wait(self, table: str) -> None:
        """Wait until a table of this name has changed, or may have; for ever when the kernel does not tell."""
        try:
            channel = self._channel = self._channel or _opened()
        except OSError as error:
            log.info("changes of firewall tables are found by looking alone", reason=str(error))
            await trio.sleep_forever()
        self._watched.setdefault(table, False)
        await trio.lowlevel.checkpoint()
        while True:
            while self._n_own:
                await self._own_ended.wait()
            self._read()
            if self._watched[table] or self._lost:
                self._watched[table] = self._lost = False
                return
            await trio.lowlevel.wait_readable(channel)

    @contextmanager
    def own(self, table: str) -> Iterator[None]:
        """Change a table within this: what is told of it is no news. The kernel tells within the call that changes it."""
        self._n_own += 1
        try:
            yield
        finally:
            self._read()
            if table in self._watched:
                self._watched[table] = False
            self._n_own -= 1
            self._own_ended.set()
            self._own_ended = trio.Event()

    def _read(self) -> None:
        while self._channel is not None:
            try:
                data = self._channel.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._lost = True
                continue
            for message in nl.split(data):
                if message.type >> 8 == _SUBSYSTEM and message.type & 0xFF != _NEW_GENERATION:
                    name = _name(message.payload)
                    if name in self._watched:
                        self._watched[name] = True


def _opened() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    channel = socket.socket(socket.AF_NETLINK, kind, _NETLINK_NETFILTER)
    try:
        channel.bind((0, 1 << _GROUP - 1))
    except OSError:
        channel.close()
        raise
    return channel


def _name(payload: bytes) -> str:
    return nl.as_text(nl.attributes(payload, _BODY_BYTES).get(_TABLE_NAME, b""))


__all__ = ["NftChanges"]
