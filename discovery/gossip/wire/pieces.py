"""msgpack that comes in pieces, or that is too much to be taken in as it is.

A byte can be a list of its own, of 56 bytes in memory: 4 MiB of them would take up 200 MiB and a second. So only values that
are no containers are made into objects, where a map of known fields is due; what nobody knows is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgpack

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.wire.dialect import Fields, no_msgpack

T = TypeVar("T")
FIELDS_MAX = 64  # of one map, known or not


def plain_values(bytes_max: int) -> msgpack.Unpacker:
    """A reader of values that are no containers; those have to be entered by their headers, or skipped."""
    return msgpack.Unpacker(raw=True, max_buffer_size=bytes_max, max_array_len=0, max_map_len=0)


class Pieces:
    """Reads from bytes that come in pieces, up to a number of bytes in all.

    msgpack's own reader goes on where it stopped, so that small pieces cost no more than large ones, but it bounds only what
    it has not looked at yet.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._n_more = bytes_max
        self._unpacker = plain_values(bytes_max)
        self._n_fields: int | None = None  # still to come of the map that is being read; None: its header is
        self._key: bytes | None = None  # whose value is due
        self._fields: Fields = {}

    def feed(self, data: bytes, go_on: Callable[[], T | None]) -> T | None:
        """Take in `data` and call `go_on`, which reads as far as it can; None when there is more to come.

        Raises:
            RemoteProtocolError: no msgpack, or too many bytes.
        """
        taken = data[: self._n_more]
        self._n_more -= len(taken)
        try:
            self._unpacker.feed(taken)
            done = go_on()
        except msgpack.OutOfData:
            done = None
        except (ValueError, TypeError, OverflowError) as error:
            raise no_msgpack("on a stream", error) from None
        if done is None and not self._n_more:
            raise RemoteProtocolError(f"a message on a stream is larger than the {self._bytes_max} bytes it may have")
        return done

    def read_fields(self, known: frozenset[bytes]) -> Fields:
        """The next map, with its known fields; only within `feed`'s `go_on`, which is called again until it is whole."""
        unpacker = self._unpacker
        if self._n_fields is None:
            self._n_fields = unpacker.read_map_header()
            self._fields = {}
            if self._n_fields > FIELDS_MAX:
                raise RemoteProtocolError(f"a map has {self._n_fields} fields: must have at most {FIELDS_MAX}")
        n_fields, key, fields, unpack = self._n_fields, self._key, self._fields, unpacker.unpack
        try:
            while n_fields:
                if key is None:
                    key = unpack()
                if key in known:
                    fields[key] = unpack()
                else:
                    unpacker.skip()
                key = None
                n_fields -= 1
        except msgpack.OutOfData:
            self._n_fields, self._key = n_fields, key
            raise
        self._n_fields = self._key = None
        return fields

    def read_bytes(self, n: int) -> bytes:
        """The next bytes, at most n, as they are; only within `feed`'s `go_on`."""
        piece: bytes = self._unpacker.read_bytes(n) if n else b""
        return piece
