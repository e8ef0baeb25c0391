"""Whether settings of self-discovery can work, before a daemon starts with them."""

from __future__ import annotations

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.peers.url import parse_peer
from beeyard.discovery.settings import SELF_PORT, DiscoverySettings, own_tags

# A label of DNS has 63 bytes, and Serf puts `_serf_` in front. Source: RFC 1035, 2.3.4.
MDNS_BYTES_MAX = 57


def check_settings(settings: DiscoverySettings) -> None:
    """Raise for the first of them that cannot work.

    Raises:
        InvalidSpec: `field` is the setting's name, such as "discovery.peers".
    """
    for peer in settings.peers:
        try:
            parse_peer(peer, SELF_PORT)
        except InvalidSpec as error:
            raise InvalidSpec("discovery.peers", error.reason) from None
    if "." in settings.mdns or len(settings.mdns.encode()) > MDNS_BYTES_MAX:
        reason = (
            f"{settings.mdns!r} is not right: it must be a word of at most {MDNS_BYTES_MAX} characters, without dots"
        )
        raise InvalidSpec("discovery.mdns", reason)
    if settings.keyring_file and not settings.keyring_file.startswith("/"):
        reason = f"{settings.keyring_file!r} is not right: it must be an absolute path"
        raise InvalidSpec("discovery.keyring_file", reason)
    own_tags(settings)


__all__ = ["MDNS_BYTES_MAX", "check_settings"]
