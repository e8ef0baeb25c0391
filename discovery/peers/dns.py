"""DNS messages as mDNS has them: questions about a service, and the PTR, SRV, A, AAAA and TXT records of an answer.

Reading bears with whatever a LAN sends: a name is followed through at most as many pointers as the message has room for, and
counts in the header are not believed. Written by hand because the library for it answers in an order that real Serf agents do
not understand, and brings a thread and an event loop of its own.

Source: RFC 1035, 4.1 (layout, compression of names); RFC 2782 (SRV); RFC 6762, 18 (top bits of a class).
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

import msgspec

from beeyard.core.errors import RemoteProtocolError

A, PTR, TXT, AAAA, SRV, ANY = 1, 12, 16, 28, 33, 255
CLASS_IN = 1
CLASS_MASK = 0x7FFF
UNICAST_WANTED = 0x8000  # top bit of a question's class
IS_ANSWER, AUTHORITATIVE = 0x8000, 0x0400
# Nobody who looks for Serf needs more in a packet; reading the worst that fits takes some 10 ms.
RECORDS_MAX = 128
NAME_BYTES_MAX = 255
LABEL_BYTES_MAX = 63
_HEADER = struct.Struct("!6H")
_QUESTION = struct.Struct("!HH")
_RECORD = struct.Struct("!HHIH")
_SRV = struct.Struct("!HHH")
_POINTER = 0xC0

# A name is its labels, since the first label of an instance may have dots in it.
Name = tuple[str, ...]


class Question(NamedTuple):
    """What somebody asks. `unicast`: the answer is wanted for him alone."""

    name: Name
    kind: int
    unicast: bool = False


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Which of the fields count is a matter of its kind."""

    name: Name
    kind: int
    ttl_s: int = 120
    target: Name = ()  # PTR, SRV
    port: int = 0  # SRV
    address: str = ""  # A, AAAA
    text: tuple[bytes, ...] = ()  # TXT


class DnsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A query or an answer; `records` are those of all three sections."""

    id: int = 0
    is_answer: bool = False
    questions: tuple[Question, ...] = ()
    records: tuple[Record, ...] = ()


def name_of(text: str) -> Name:
    """The labels of a name without dots in its labels."""
    return tuple(text.rstrip(".").split("."))


def folded(name: Name) -> Name:
    """A name for comparing: DNS does not tell upper from lower case."""
    return tuple(label.lower() for label in name)


def encode(message: DnsMessage) -> bytes:
    """The bytes of a message. Names are not compressed: ten records have room in any packet."""
    flags = IS_ANSWER | AUTHORITATIVE if message.is_answer else 0
    out = bytearray(_HEADER.pack(message.id, flags, len(message.questions), len(message.records), 0, 0))
    for question in message.questions:
        out += _name_bytes(question.name)
        out += _QUESTION.pack(question.kind, CLASS_IN | (UNICAST_WANTED if question.unicast else 0))
    for record in message.records:
        data = _data_bytes(record)
        out += _name_bytes(record.name) + _RECORD.pack(record.kind, CLASS_IN, record.ttl_s, len(data)) + data
    return bytes(out)


def decode(data: bytes) -> DnsMessage:
    """Read a message.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        return _decode(data)
    except (struct.error, IndexError, ValueError) as error:
        raise RemoteProtocolError(f"a DNS message of {len(data)} bytes cannot be read: {error}") from None


def _decode(data: bytes) -> DnsMessage:
    message_id, flags, *counts = _HEADER.unpack_from(data)
    at = _HEADER.size
    questions: list[Question] = []
    for _ in range(min(counts[0], RECORDS_MAX)):
        name, at = _read_name(data, at)
        kind, cls = _QUESTION.unpack_from(data, at)
        at += _QUESTION.size
        if cls & CLASS_MASK in (CLASS_IN, ANY):
            questions.append(Question(name, kind, bool(cls & UNICAST_WANTED)))
    records: list[Record] = []
    for _ in range(min(sum(counts[1:]), RECORDS_MAX)):
        name, at = _read_name(data, at)
        kind, cls, ttl_s, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise ValueError("a record is cut off")
        record = _read_record(data, at, length, Record(name=name, kind=kind, ttl_s=ttl_s))
        if record is not None and cls & CLASS_MASK == CLASS_IN:
            records.append(record)
        at += length
    return DnsMessage(
        id=message_id, is_answer=bool(flags & IS_ANSWER), questions=tuple(questions), records=tuple(records)
    )


def _read_record(data: bytes, at: int, length: int, record: Record) -> Record | None:
    """A record with its data; None for a kind that is of no use here."""
    replace = msgspec.structs.replace
    match record.kind:
        case 12:  # PTR
            return replace(record, target=_read_name(data, at)[0])
        case 33:  # SRV
            _, _, port = _SRV.unpack_from(data, at)
            return replace(record, port=port, target=_read_name(data, at + _SRV.size)[0])
        case 1 | 28:  # A, AAAA
            return replace(record, address=str(ipaddress.ip_address(data[at : at + length])))
        case 16:  # TXT
            return replace(record, text=_read_texts(data[at : at + length]))
    return None


def _read_texts(data: bytes) -> tuple[bytes, ...]:
    texts = []
    at = 0
    while at < len(data):
        texts.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return tuple(texts)


def _read_name(data: bytes, at: int) -> tuple[Name, int]:
    """A name and where what follows it begins."""
    labels: list[str] = []
    n_bytes = 0
    end = -1
    limit = at  # a pointer leads to what comes before it: so none can be followed twice
    while (length := data[at]) != 0:
        if length & _POINTER == _POINTER:
            target = (length & ~_POINTER) << 8 | data[at + 1]
            if target >= limit:
                raise ValueError("a name points forwards")
            end = at + 2 if end < 0 else end
            at = limit = target
            continue
        if length & _POINTER:
            raise ValueError("a label of an unknown kind")
        label = data[at + 1 : at + 1 + length]
        n_bytes += 1 + length
        if len(label) < length or n_bytes > NAME_BYTES_MAX:
            raise ValueError("a name is cut off or too long")
        labels.append(label.decode(errors="replace"))
        at += 1 + length
    return tuple(labels), at + 1 if end < 0 else end


def _name_bytes(name: Name) -> bytes:
    out = bytearray()
    for label in name:
        data = label.encode()[:LABEL_BYTES_MAX]
        out += bytes([len(data)]) + data
    return bytes(out) + b"\0"


def _data_bytes(record: Record) -> bytes:
    match record.kind:
        case 12:  # PTR
            return _name_bytes(record.target)
        case 33:  # SRV: priority 10, weight 1, as Serf's agents say
            return _SRV.pack(10, 1, record.port) + _name_bytes(record.target)
        case 1 | 28:  # A, AAAA
            return ipaddress.ip_address(record.address).packed
        case _:  # TXT
            return b"".join(bytes([len(text[:255])]) + text[:255] for text in record.text)


__all__ = [
    "AAAA",
    "ANY",
    "PTR",
    "SRV",
    "TXT",
    "A",
    "DnsMessage",
    "Name",
    "Question",
    "Record",
    "decode",
    "encode",
    "folded",
    "name_of",
]
