"""The keys of a gossip cluster, and AES-GCM with them as memberlist does it.

Source: memberlist 0.2.2 security.go and keyring.go; the file, Serf 0.9.4 keymanager.go (writeKeyringFile).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from beeyard.core.errors import InvalidSpec, RemoteProtocolError

KEY_FILE_MODE = 0o600
KEY_LENGTHS = (16, 24, 32)
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
BLOCK_BYTES: Final = 16
SEAL_OVERHEAD: Final = 1 + NONCE_BYTES + TAG_BYTES  # of version 1, which all senders write


class Keyring:
    """Keys of 16, 24 or 32 bytes. The first one, the primary, encrypts; all are tried when a blob is opened."""

    def __init__(self, keys: Sequence[bytes], *, random_bytes: Callable[[int], bytes]) -> None:
        """
        Args:
            keys: primary first; none: nothing is encrypted until one is installed.
            random_bytes: for nonces, such as `host.rng.randbytes`.

        Raises:
            InvalidSpec: a key has a length that AES does not know.
        """
        self._random_bytes = random_bytes
        self._ciphers: dict[bytes, AESGCM] = {}  # in the order of trial
        for key in keys:
            self.install(key)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, the primary first."""
        return tuple(self._ciphers)

    @property
    def primary(self) -> bytes:
        """The key that encrypts; b"" without one."""
        return next(iter(self._ciphers), b"")

    def __bool__(self) -> bool:
        """Whether gossip is encrypted at all."""
        return bool(self._ciphers)

    def install(self, key: bytes) -> None:
        """Add a key to open with; the first one becomes the primary. One that is there already stays where it is.

        Raises:
            InvalidSpec: its length is not AES's.
        """
        _check_length(key)
        if key not in self._ciphers:
            self._ciphers[bytes(key)] = AESGCM(key)

    def use(self, key: bytes) -> None:
        """Make an installed key the primary.

        Raises:
            InvalidSpec: it is not installed.
        """
        if key not in self._ciphers:
            raise InvalidSpec("key", "is not in the keyring: must be installed first")
        self._ciphers = {key: self._ciphers[key], **self._ciphers}

    def remove(self, key: bytes) -> None:
        """Forget a key; one that is not there is forgotten already.

        Raises:
            InvalidSpec: it is the primary.
        """
        if key and key == self.primary:
            raise InvalidSpec("key", "is the primary: must not be removed before another one is used")
        self._ciphers.pop(key, None)

    def seal(self, plain: bytes, *, associated: bytes = b"", version: int = 1) -> bytes:
        """Version byte, nonce, ciphertext and tag: 29 bytes more than `plain` (version 0: up to 45).

        Source: encryptPayload. Version 0 pads as PKCS#7 does; only protocol 1 of memberlist, which nobody speaks, sends it.
        """
        assert self._ciphers, "seal without a key"
        assert version in (0, 1), f"seal with version {version}"
        if version == 0:
            n_more = BLOCK_BYTES - len(plain) % BLOCK_BYTES
            plain += bytes([n_more]) * n_more
        nonce = self._random_bytes(NONCE_BYTES)
        cipher = next(iter(self._ciphers.values()))
        return b"".join((bytes((version,)), nonce, cipher.encrypt(nonce, plain, associated)))

    def open(self, blob: bytes, *, associated: bytes = b"") -> bytes:
        """What a holder of one of the keys sealed.

        Raises:
            RemoteProtocolError: too short, of an unknown version, or sealed with no key of these.
        """
        if len(blob) < SEAL_OVERHEAD:
            raise RemoteProtocolError(f"an encrypted message has {len(blob)} bytes: must have at least {SEAL_OVERHEAD}")
        version = blob[0]
        if version > 1:
            raise RemoteProtocolError(f"encryption version {version} is not known here: must be 0 or 1")
        nonce, ciphertext = blob[1 : 1 + NONCE_BYTES], blob[1 + NONCE_BYTES :]
        for cipher in self._ciphers.values():
            try:
                plain = cipher.decrypt(nonce, ciphertext, associated)
            except InvalidTag:
                continue
            return plain if version == 1 else _without_padding(plain)
        # Peers show this sentence to their users, so it is memberlist's own.
        raise RemoteProtocolError("no installed keys could decrypt the message")

    def to_json(self) -> str:
        """The text of Serf's keyring file, which is to have the mode `KEY_FILE_MODE`: base64, the primary first."""
        return json.dumps([encode_key(key) for key in self._ciphers], indent=2)


def _without_padding(plain: bytes) -> bytes:
    n_more = plain[-1] if plain else 0
    if not 1 <= n_more <= min(BLOCK_BYTES, len(plain)):
        raise RemoteProtocolError(f"padding of an encrypted message is {n_more}: must be from 1 to {BLOCK_BYTES}")
    return plain[:-n_more]


def _check_length(key: bytes) -> None:
    if len(key) not in KEY_LENGTHS:
        raise InvalidSpec("key", f"has {len(key)} bytes: must have 16, 24 or 32, as `serf keygen` makes them")


def keys_from_json(text: str) -> list[bytes]:
    """The keys in the text of a keyring file.

    Raises:
        InvalidSpec: it is no list of keys, or an empty one.
    """
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpec("keyring", f"is no JSON ({error}): must be a list of keys in base64") from None
    if not isinstance(listed, list) or not listed or not all(isinstance(key, str) for key in listed):
        raise InvalidSpec("keyring", "is no list of texts: must be a list of keys in base64, the primary first")
    return [decode_key(key) for key in listed]


def encode_key(key: bytes) -> str:
    """A key as people and `KeyResponse` write it: standard base64."""
    return base64.b64encode(key).decode()


def decode_key(text: str) -> bytes:
    """The key that somebody wrote as base64.

    Raises:
        InvalidSpec: it is no base64, or not of AES's lengths.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSpec("key", "is no base64: must be 16, 24 or 32 bytes in base64") from None
    _check_length(key)
    return key
