"""Push/pull, the exchange of everything: a header, a map for each member, and what the layer above adds, back to back.

Source: memberlist 0.2.2 net.go (pushPullHeader, pushNodeState, sendLocalState, readRemoteState).
"""

from __future__ import annotations

from typing import Final

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import NodeRecord, PushPull
from beeyard.discovery.gossip.wire.dialect import (
    U32,
    Fields,
    address,
    flag,
    host_to_bytes,
    name,
    number,
    or_nil,
    pack,
    raw,
    wrong,
)
from beeyard.discovery.gossip.wire.limits import DEFAULT_LIMITS, META_BYTES_MAX, REFUSED_MAX, StreamLimits
from beeyard.discovery.gossip.wire.pieces import Pieces

VSN_BYTES = 6
STATE_MAX: Final = 3
HEADER_FIELDS = frozenset([b"Nodes", b"UserStateLen", b"Join"])
RECORD_FIELDS = frozenset([b"Name", b"Addr", b"Port", b"Meta", b"Incarnation", b"State", b"Vsn"])


def encode_push_pull(push_pull: PushPull) -> bytes:
    """What follows the type byte."""
    header = {"Join": push_pull.join, "Nodes": len(push_pull.nodes), "UserStateLen": len(push_pull.user_state)}
    return b"".join([pack(header), *map(_encode_record, push_pull.nodes), push_pull.user_state])


def _encode_record(node: NodeRecord) -> bytes:
    fields = {
        "Addr": host_to_bytes(node.address.host) or None,
        "Incarnation": node.incarnation & U32,
        "Meta": or_nil(node.meta),
        "Name": node.name,
        "Port": node.address.port,
        "State": node.state,
        "Vsn": or_nil(node.vsn),
    }
    return pack(fields)


def _decode_record(fields: Fields) -> NodeRecord:
    return NodeRecord(
        name=name(fields, b"Name"),
        address=address(fields, b"Addr", b"Port"),
        meta=meta_of(fields),
        incarnation=number(fields, b"Incarnation", U32),
        state=number(fields, b"State", STATE_MAX),
        vsn=vsn_of(fields),
    )


def meta_of(fields: Fields) -> bytes:
    """What a member says about itself, as long as memberlist lets it be."""
    meta = raw(fields, b"Meta")
    if len(meta) > META_BYTES_MAX:
        raise RemoteProtocolError(f"Meta has {len(meta)} bytes: must have at most {META_BYTES_MAX}")
    return meta


def vsn_of(fields: Fields) -> bytes:
    """Six versions or none at all: whoever has some may index all six."""
    vsn = raw(fields, b"Vsn")
    if vsn and len(vsn) != VSN_BYTES:
        raise wrong(b"Vsn", vsn, f"{VSN_BYTES} bytes")
    return vsn


class PushPullReader:
    """Takes in what follows the type byte, in any pieces, and costs no more for many small ones than for one."""

    def __init__(self, limits: StreamLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._pieces = Pieces(limits.plain_bytes_max)
        self._header: Fields | None = None
        self._n_nodes = 0
        self._user_bytes = 0  # still to come
        self._nodes: list[NodeRecord] = []
        self._n_refused = 0
        self._user_state = bytearray()

    def feed(self, data: bytes) -> PushPull | None:
        """The push/pull when it is whole, else None.

        Raises:
            RemoteProtocolError: it is none, or larger than the limits.
        """
        return self._pieces.feed(data, self._go_on)

    def _go_on(self) -> PushPull | None:
        if self._header is None:
            self._header = self._read_header(self._pieces.read_fields(HEADER_FIELDS))
        while self._n_nodes:
            self._take(self._pieces.read_fields(RECORD_FIELDS))
            self._n_nodes -= 1
        if self._user_bytes:
            piece = self._pieces.read_bytes(self._user_bytes)
            self._user_state += piece
            self._user_bytes -= len(piece)
            if self._user_bytes:
                return None
        return PushPull(nodes=tuple(self._nodes), user_state=bytes(self._user_state), join=flag(self._header, b"Join"))

    def _read_header(self, fields: Fields) -> Fields:
        self._n_nodes = number(fields, b"Nodes", self._limits.nodes_max)
        self._user_bytes = number(fields, b"UserStateLen", self._limits.user_bytes_max)
        flag(fields, b"Join")
        return fields

    def _take(self, fields: Fields) -> None:
        try:
            self._nodes.append(_decode_record(fields))
        except RemoteProtocolError:
            self._n_refused += 1
            if self._n_refused > REFUSED_MAX:
                raise


def decode_push_pull(data: bytes) -> PushPull:
    """The push/pull that `data` is, without the type byte.

    Raises:
        RemoteProtocolError: it is none, or not whole.
    """
    whole = PushPullReader().feed(data)
    if whole is None:
        raise RemoteProtocolError("a push/pull ends in the middle")
    return whole
