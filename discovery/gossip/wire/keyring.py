"""The keys of a gossip cluster, and AES-GCM with them as memberlist does it (security.go, keyring.go)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

KEY_FILE_MODE = 0o600


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

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, the primary first."""
        raise NotImplementedError

    @property
    def primary(self) -> bytes:
        """The key that encrypts; b"" without one."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        """Whether gossip is encrypted at all."""
        raise NotImplementedError

    def install(self, key: bytes) -> None:
        """Add a key to open with; the first one becomes the primary. One that is there already stays where it is.

        Raises:
            InvalidSpec: its length is not AES's.
        """
        raise NotImplementedError

    def use(self, key: bytes) -> None:
        """Make an installed key the primary.

        Raises:
            InvalidSpec: it is not installed.
        """
        raise NotImplementedError

    def remove(self, key: bytes) -> None:
        """Forget a key; one that is not there is forgotten already.

        Raises:
            InvalidSpec: it is the primary.
        """
        raise NotImplementedError

    def seal(self, plain: bytes, *, associated: bytes = b"", version: int = 1) -> bytes:
        """Version byte, nonce, ciphertext and tag: 29 bytes more than `plain` (version 0: up to 45)."""
        raise NotImplementedError

    def open(self, blob: bytes, *, associated: bytes = b"") -> bytes:
        """What a holder of one of the keys sealed.

        Raises:
            RemoteProtocolError: too short, of an unknown version, or sealed with no key of these.
        """
        raise NotImplementedError

    def to_json(self) -> str:
        """The text of Serf's keyring file, which is to have the mode `KEY_FILE_MODE`: base64, the primary first."""
        raise NotImplementedError


def keys_from_json(text: str) -> list[bytes]:
    """The keys in the text of a keyring file.

    Raises:
        InvalidSpec: it is no list of keys, or an empty one.
    """
    raise NotImplementedError


def encode_key(key: bytes) -> str:
    """A key as people and `KeyResponse` write it: standard base64."""
    raise NotImplementedError


def decode_key(text: str) -> bytes:
    """The key that somebody wrote as base64.

    Raises:
        InvalidSpec: it is no base64, or not of AES's lengths.
    """
    raise NotImplementedError
