"""Keys come and go, everybody who has one of them reads what was sealed, and nobody else does."""

from __future__ import annotations

import json
import random
import re

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beeyard.core.errors import InvalidSpec, RemoteProtocolError
from beeyard.discovery.gossip.wire.keyring import Keyring, decode_key, encode_key, keys_from_json

# The same examples each time, however busy the machine is.
STEADY = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
OLD, NEW, OTHER = b"o" * 32, b"n" * 16, b"x" * 24


def ring(*keys: bytes) -> Keyring:
    return Keyring(keys, random_bytes=random.Random("nonces").randbytes)


@given(st.binary(max_size=100), st.sampled_from([16, 24, 32]), st.sampled_from([0, 1]), st.binary(max_size=5))
@settings(STEADY, max_examples=50)
def test_what_is_sealed_is_opened(plain: bytes, size: int, version: int, associated: bytes) -> None:
    """With keys of all lengths, in both versions, with data beside it."""
    keyring = ring(b"k" * size)
    blob = keyring.seal(plain, associated=associated, version=version)
    assert plain == keyring.open(blob, associated=associated)
    assert len(blob) == (len(plain) + 29 if version == 1 else len(plain) + 45 - len(plain) % 16)
    with pytest.raises(RemoteProtocolError):
        keyring.open(blob, associated=associated + b"!")


def test_the_blob_is_version_nonce_and_aes_gcm() -> None:
    """As memberlist lays it out; each one has a nonce of its own."""
    keyring = ring(OLD)
    one, two = keyring.seal(b"hello"), keyring.seal(b"hello")
    assert one[0] == 1
    assert AESGCM(OLD).decrypt(one[1:13], one[13:], None) == b"hello"
    assert one[1:13] != two[1:13]
    padded = keyring.seal(b"hello", version=0)
    assert padded[0] == 0
    assert AESGCM(OLD).decrypt(padded[1:13], padded[13:], None) == b"hello" + bytes([11]) * 11


def test_a_key_is_replaced_without_a_moment_of_silence() -> None:
    """Install everywhere, use everywhere, remove everywhere: at each step both members read each other."""
    one, two = ring(OLD), ring(OLD)

    def both_read() -> None:
        assert two.open(one.seal(b"1")) == b"1"
        assert one.open(two.seal(b"2")) == b"2"

    for step in (lambda r: r.install(NEW), lambda r: r.use(NEW), lambda r: r.remove(OLD)):
        for member in (one, two):
            step(member)
            both_read()
    assert (NEW,) == one.keys == two.keys
    with pytest.raises(RemoteProtocolError, match="no installed keys could decrypt the message"):
        one.open(ring(OLD).seal(b"late"))


def test_the_primary_is_first_and_the_others_keep_their_order() -> None:
    """What list-keys shows, and what the file holds."""
    keyring = ring()
    assert not keyring
    assert keyring.primary == b""
    for key in (OLD, NEW, OTHER, NEW):
        keyring.install(key)
    assert keyring.keys == (OLD, NEW, OTHER)
    keyring.use(OTHER)
    assert keyring.keys == (OTHER, OLD, NEW)
    assert keyring.primary == OTHER
    keyring.remove(b"unknown")
    keyring.remove(OLD)
    assert keyring.keys == (OTHER, NEW)
    assert keyring


def test_what_cannot_be_done_to_a_ring_is_said() -> None:
    """And changes nothing."""
    keyring = ring(OLD)
    with pytest.raises(InvalidSpec, match="is the primary: must not be removed"):
        keyring.remove(OLD)
    with pytest.raises(InvalidSpec, match="is not in the keyring"):
        keyring.use(NEW)
    for wrong in (b"", b"short", b"k" * 17, b"k" * 33):
        with pytest.raises(InvalidSpec, match="must have 16, 24 or 32"):
            keyring.install(wrong)
    assert keyring.keys == (OLD,)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "has 0 bytes: must have at least 29"),
        (bytes([1]) * 28, "has 28 bytes"),
        (bytes([2]) * 29, "encryption version 2 is not known here: must be 0 or 1"),
        (bytes([1]) * 29, "no installed keys"),
        (bytes([0]) * 45, "no installed keys"),
        (b"\x00" + bytes(12) + AESGCM(OLD).encrypt(bytes(12), b"", None), "padding of an encrypted message is 0"),
        (b"\x00" + bytes(12) + AESGCM(OLD).encrypt(bytes(12), b"a\x03", None), "padding of an encrypted message is 3"),
        (b"\x00" + bytes(12) + AESGCM(OLD).encrypt(bytes(12), bytes(16), None), "must be from 1 to 16"),
    ],
)
def test_what_was_not_sealed_is_refused(blob: bytes, reason: str) -> None:
    """Truncated, of another version, or of another cluster."""
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        ring(OLD).open(blob)


def test_the_file_is_serfs() -> None:
    """A list of base64, the primary first, indented as Go does it."""
    keyring = ring(OLD, NEW)
    keyring.use(NEW)
    text = keyring.to_json()
    assert text == f'[\n  "{encode_key(NEW)}",\n  "{encode_key(OLD)}"\n]'
    assert keys_from_json(text) == [NEW, OLD]
    assert decode_key("D1GrdrA6TSsrg8095MeTCrfwSa/AKevSO6q0unKTIzo=").hex().startswith("0f51ab76b03a4d2b")


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", "[" * 100_000, json.dumps(["AA=="]), json.dumps(["?" * 24])])
def test_a_file_that_holds_no_keys_is_refused(text: str) -> None:
    """The daemon says so instead of gossiping without a key."""
    with pytest.raises(InvalidSpec):
        keys_from_json(text)
