"""The keys of gossip as a daemon reads them from its disk, before it has a gossip node."""

from __future__ import annotations

from beeyard.core.errors import DiskError, InvalidSpec
from beeyard.discovery.gossip.wire.keyring import Keyring, keys_from_json
from beeyard.runtime.host import Host


async def read_keyring(host: Host, path: str) -> Keyring | None:
    """The keyring of a file; None when no file is set.

    Raises:
        InvalidSpec: the file is not there, cannot be read, or holds no list of keys.
    """
    if not path:
        return None
    try:
        data = await host.files.read(path)
    except DiskError as error:
        raise InvalidSpec("discovery.keyring_file", f"cannot read {path}: {error.reason.lower()}") from error
    if data is None:
        reason = f"{path} does not exist: it must hold a list of keys in base64, as `serf keygen` makes them"
        raise InvalidSpec("discovery.keyring_file", reason)
    try:
        return Keyring(keys_from_json(data.decode()), random_bytes=host.rng.randbytes)
    except (InvalidSpec, UnicodeDecodeError) as error:
        raise InvalidSpec("discovery.keyring_file", f"{path}: {error}") from error


__all__ = ["read_keyring"]
