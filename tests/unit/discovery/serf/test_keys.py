"""Key queries: what a member does about one, what it answers, and what comes of all answers."""

import base64

import pytest

from beeyard.discovery.gossip.message import ConflictResponse, KeyRequest, KeyResponse
from beeyard.discovery.gossip.serf.event import KeysDone
from beeyard.discovery.gossip.serf.keys import (
    INSTALL,
    LIST,
    N_KEYS_MAX,
    REMOVE,
    USE,
    KeyTally,
    carry_out,
    encode_response,
)
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.serf_codec import decode_serf, encode_serf

ONE, TWO, THREE = b"1" * 16, b"2" * 24, b"3" * 32


def a_keyring(*keys: bytes) -> Keyring:
    return Keyring(keys, random_bytes=bytes)


def request(key: bytes) -> bytes:
    return encode_serf(KeyRequest(key=key))


@pytest.mark.parametrize(
    ("name", "payload", "result", "has_changed", "keys"),
    [
        (INSTALL, request(THREE), True, True, (ONE, TWO, THREE)),
        (INSTALL, request(TWO), True, False, (ONE, TWO)),
        (INSTALL, request(b"short"), False, False, (ONE, TWO)),
        (USE, request(TWO), True, True, (TWO, ONE)),
        (USE, request(ONE), True, False, (ONE, TWO)),
        (USE, request(THREE), False, False, (ONE, TWO)),
        (REMOVE, request(TWO), True, True, (ONE,)),
        (REMOVE, request(ONE), False, False, (ONE, TWO)),
        (INSTALL, b"", False, False, (ONE, TWO)),
        (INSTALL, b"\x07garbage", False, False, (ONE, TWO)),
        (INSTALL, encode_serf(KeyResponse(result=True)), False, False, (ONE, TWO)),
    ],
)
def test_key_query_does_one_step_of_a_rotation(
    name: str, payload: bytes, result: bool, has_changed: bool, keys: tuple[bytes, ...]
) -> None:
    """What cannot be done is answered with why, and changes nothing."""
    keyring = a_keyring(ONE, TWO)
    response, changed = carry_out(keyring, name, payload)
    assert (response.result, changed, keyring.keys) == (result, has_changed, keys)
    assert bool(response.message) == (not result)


def test_listing_tells_all_keys_in_base64() -> None:
    """The first is the primary one, as in Serf's."""
    response, _ = carry_out(a_keyring(ONE, TWO), LIST, request(b""))
    assert response.keys == tuple(base64.b64encode(key).decode() for key in (ONE, TWO))
    assert response.primary_key == response.keys[0]


@pytest.mark.parametrize("keyring", [None, a_keyring()])
@pytest.mark.parametrize("name", [INSTALL, LIST])
def test_member_without_encryption_says_so(keyring: Keyring | None, name: str) -> None:
    """No key is taken in from an open network: anybody could send one."""
    response, changed = carry_out(keyring, name, request(ONE))
    assert not response.result
    assert "encryption not enabled" in response.message
    assert not changed


def test_keyring_does_not_grow_without_end() -> None:
    """Whoever may install keys may not fill memory with them."""
    keyring = a_keyring(*[bytes([number]) * 16 for number in range(N_KEYS_MAX)])
    response, _ = carry_out(keyring, INSTALL, request(THREE))
    assert not response.result
    assert str(N_KEYS_MAX) in response.message


def test_list_of_many_keys_is_cut_to_what_fits_and_says_so() -> None:
    """An answer has 1,024 bytes."""
    keys = tuple(base64.b64encode(bytes([number]) * 32).decode() for number in range(40))
    payload = encode_response(KeyResponse(result=True, keys=keys, primary_key=keys[0]), 900)
    shown = decode_serf(payload)
    assert isinstance(shown, KeyResponse)
    assert len(payload) <= 900
    assert shown.keys == keys[: len(shown.keys)]
    assert 10 < len(shown.keys) < 40
    assert shown.message == f"Truncated key list response, showing first {len(shown.keys)} of 40 keys"


def test_tally_counts_good_answers_and_keeps_what_went_wrong() -> None:
    """It is complete when as many have answered as were alive."""
    tally = KeyTally(7, 4)
    tally.answered("a", encode_serf(KeyResponse(result=True, keys=("k1", "k2"), primary_key="k1")))
    tally.answered("b", encode_serf(KeyResponse(result=False, message="no such key", keys=("k1",), primary_key="k1")))
    tally.answered("c", b"\x09\xc1")
    assert not tally.is_complete()
    tally.answered("d", encode_serf(ConflictResponse()))
    assert tally.is_complete()
    (done,) = tally.done(0, 4)
    assert isinstance(done, KeysDone)
    assert (done.query_id, done.n_members, done.n_answers, done.n_good) == (7, 4, 4, 1)
    assert sorted(done.messages) == ["b", "c", "d"]
    assert done.messages["b"] == "no such key"
    assert (done.keys, done.primary_keys) == ({"k1": 2, "k2": 1}, {"k1": 2})
