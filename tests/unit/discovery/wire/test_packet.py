"""Datagrams: every order of layers that is legal, none that is not, and a price for each that has an end."""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
from itertools import pairwise
from zlib import crc32

import msgpack
import pytest

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Ack, Nack, Ping, StreamError, User
from beeyard.discovery.gossip.wire import lzw
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import COMPOUND_PARTS_MAX, PacketCodec

NACK = encode(Nack(seq_no=1))
LONG = encode(Ack(seq_no=1, payload=b"coordinate " * 20))
PLAIN = PacketCodec(compress=False)


def ring(key: bytes = b"k" * 32) -> Keyring:
    return Keyring([key], random_bytes=random.Random("nonces").randbytes)


def crc(data: bytes) -> bytes:
    return b"\x0c" + struct.pack(">I", crc32(data)) + data


def compressed(data: bytes) -> bytes:
    packed: bytes = msgpack.packb({"Algo": 0, "Buf": lzw.compress(data)}, use_bin_type=False)
    return b"\x09" + packed


def compound(*parts: bytes) -> bytes:
    return bytes([7, len(parts)]) + b"".join(struct.pack(">H", len(part)) for part in parts) + b"".join(parts)


def test_one_part_goes_alone_and_several_as_a_compound() -> None:
    """The bytes of each."""
    assert PLAIN.pack([NACK]) == NACK
    assert compound(NACK, b"\x08abc") == PLAIN.pack([NACK, b"\x08abc"])
    assert [Nack(seq_no=1), User(data=b"abc")] == PLAIN.unpack(PLAIN.pack([NACK, b"\x08abc"]))


def test_layers_are_put_on_in_memberlists_order() -> None:
    """Compound, compression where it is worth it, checksum, encryption."""
    codec = PacketCodec()
    assert compressed(compound(LONG, NACK)) == codec.pack([LONG, NACK])
    assert crc(compressed(compound(LONG, NACK))) == codec.pack([LONG, NACK], crc=True)
    assert compound(NACK, NACK) == codec.pack([NACK, NACK])  # would get larger
    keyring = ring()
    sealed = PacketCodec(keyring).pack([LONG, NACK], crc=True)
    assert crc(compressed(compound(LONG, NACK))) == keyring.open(sealed)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("with_crc", [False, True])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("n_parts", [1, 2, COMPOUND_PARTS_MAX])
def test_every_combination_of_layers_comes_back(encrypted: bool, with_crc: bool, compress: bool, n_parts: int) -> None:
    """Receivers need not be told which of them a sender uses."""
    messages = [Ping(seq_no=i, node="somebody") for i in range(n_parts)]
    keyring = ring() if encrypted else None
    sender = PacketCodec(keyring, compress=compress)
    data = sender.pack([encode(message) for message in messages], crc=with_crc)
    assert messages == PacketCodec(keyring, compress=not compress).unpack(data)


def test_more_parts_than_old_peers_can_count_are_a_bug_of_ours() -> None:
    """memberlist 0.2.2 reads 128 of them as garbage."""
    for n_parts in (0, COMPOUND_PARTS_MAX + 1):
        with pytest.raises(AssertionError):
            PLAIN.pack([NACK] * n_parts + ([NACK] if n_parts else []))


def test_the_overhead_is_what_encryption_adds() -> None:
    """A sender fills its packet up to it."""
    keyring = ring()
    codec = PacketCodec(keyring, compress=False)
    assert len(codec.pack([NACK])) == len(NACK) + codec.overhead == len(NACK) + 29
    assert PLAIN.overhead == 0
    assert PacketCodec(keyring, verify_outgoing=False).overhead == 0


def test_a_cluster_starts_to_encrypt_in_three_steps() -> None:
    """Read both and write plainly; read both and write encrypted; refuse what is plain. Each step reads the one before."""
    keyring = ring()
    steps = [
        PacketCodec(),
        PacketCodec(keyring, verify_incoming=False, verify_outgoing=False),
        PacketCodec(keyring, verify_incoming=False),
        PacketCodec(keyring),
    ]
    for one, other in pairwise(steps):
        assert [Nack(seq_no=1)] == one.unpack(other.pack([NACK])) == other.unpack(one.pack([NACK]))
    with pytest.raises(RemoteProtocolError):
        steps[3].unpack(steps[0].pack([NACK]))
    with pytest.raises(RemoteProtocolError):
        steps[0].unpack(steps[3].pack([NACK]))


def test_a_ring_may_get_its_first_key_while_packets_flow() -> None:
    """The codec asks it each time."""
    keyring = Keyring([], random_bytes=random.Random(1).randbytes)
    codec = PacketCodec(keyring)
    assert codec.pack([NACK]) == NACK
    keyring.install(b"k" * 16)
    assert codec.pack([NACK]) != NACK
    assert [Nack(seq_no=1)] == codec.unpack(codec.pack([NACK]))


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_encryption_are_read_before_any_type(version: int) -> None:
    """Their first bytes are those of a ping and an indirect ping."""
    keyring = ring()
    assert [Nack(seq_no=1)] == PacketCodec(keyring).unpack(keyring.seal(crc(NACK), version=version))
    with pytest.raises(RemoteProtocolError):
        PacketCodec(keyring).unpack(keyring.seal(NACK, version=version, associated=b"not empty"))


LEGAL = {
    "nested compounds": compound(NACK, compound(NACK, NACK)),
    "a compressed part": compound(NACK, compressed(NACK), NACK),
    "a checksum outside": crc(compressed(compound(NACK, NACK, NACK))),
    "more than 127 parts": compound(*[NACK] * 255),
}


@pytest.mark.parametrize("data", LEGAL.values(), ids=LEGAL)
def test_what_newer_peers_may_send_is_read(data: bytes) -> None:
    """All parts are there."""
    assert set(PLAIN.unpack(data)) == {Nack(seq_no=1)}
    assert len(PLAIN.unpack(data)) == (255 if len(data) > 1000 else 3)


REFUSED = {
    b"": "empty",
    crc(NACK)[:-1]: "checksum",
    b"\x0c\x00\x00": "checksum",
    b"\x0c" + bytes(4) + NACK: "is wrong: must be",
    compressed(crc(NACK)): "type 12 is not known",
    crc(crc(NACK)): "type 12 is not known",
    compound(crc(NACK)): "type 12 is not known",
    b"\x07": "cut off",
    b"\x07\x00": "",
    b"\x07\x05\x00\x01": "a compound of 4 bytes is cut off: its lengths alone take 12",
    b"\x09": "no msgpack",
    b"\x09\x80": "without an end code",
    b"\x09\x82\xa4Algo\x00\xa3Buf\xa0": "without an end code",
    b"\x09\x82\xa4Algo\x01\xa3Buf\xa0": "compression 1 is not known here: must be 0, LZW",
    b"\x09\x82\xa4Algo\x00\xa3Buf\x05": "Buf is 5",
    compressed(bytes(70_000)): "stands for more than 65536 bytes",
    compressed(compressed(compressed(compressed(compressed(NACK))))): "more than 4 layers",
    b"\xf4\x01a" + NACK: "type 244 is not known",
    b"\x06\x80": "type 6 came in a packet: must come on a stream",
    encode(StreamError(error="x")): "type 13 came in a packet",
    b"\x0a\x00\x00\x00\x01a": "type 10 is not known",
    compound(b"\x00", b"", b"\x0b"): "no msgpack",
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.items(), ids=[repr(data[:12]) for data in REFUSED])
def test_a_packet_of_which_nothing_can_be_read_is_refused(data: bytes, reason: str) -> None:
    """With the last reason; a compound of no parts just says nothing."""
    if not reason:
        assert PLAIN.unpack(data) == []
        return
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        PLAIN.unpack(data)


def test_bad_parts_are_left_out_and_counted() -> None:
    """One of them does not cost the others."""
    codec = PacketCodec()
    assert [Nack(seq_no=1)] * 2 == codec.unpack(compound(NACK, b"\x00", b"", b"\x63abc", NACK))
    assert codec.refused == 3
    assert [Nack(seq_no=1)] * 2 == codec.unpack(compound(NACK, NACK, LONG)[:-1])  # cut off in the third
    assert codec.refused == 3


def test_compounds_within_compounds_give_no_flood() -> None:
    """A datagram gives as many messages as one compound can hold."""
    assert len(PLAIN.unpack(compound(*[compound(*[NACK] * 100)] * 60))) == 255


def test_a_compound_of_bombs_costs_as_much_as_one() -> None:
    """What is decompressed in one packet is bounded together."""
    codec = PacketCodec()
    bomb = compressed(bytes(1 << 20))
    assert [Nack(seq_no=1)] == codec.unpack(compound(*[bomb] * 30, NACK))
    assert codec.refused == 30
    large = compressed(b"\x08" + bytes(40_000))
    assert [len(message.data) for message in codec.unpack(compound(large, large))] == [40_000]  # type: ignore[attr-defined]


def test_a_compound_of_nested_lists_costs_next_to_nothing() -> None:
    """msgpack makes room for a list as soon as it has read its length."""
    part = b"\x00\x81\xa1x" + b"\xdc\x02\x00" * 1000
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="exceeds max_array_len"):
        PLAIN.unpack(compressed(compound(*[part] * 20)))
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()
