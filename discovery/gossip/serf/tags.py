"""Tags of a member within memberlist's meta."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.wire.serf_codec import META_BYTES_MAX, decode_tags, encode_tags


@lru_cache(maxsize=2048)
def tags_of(meta: bytes) -> dict[str, str]:
    """The tags in a member's meta; the same dict for the same bytes, so it must not be changed.

    Raises:
        RemoteProtocolError: meta says that it holds tags and does not.
    """
    return decode_tags(meta)


def meta_of(tags: Mapping[str, str]) -> bytes:
    """The meta that shows these tags.

    Raises:
        InvalidSpec: it would take more than 512 bytes.
    """
    meta = encode_tags(tags)
    if len(meta) > META_BYTES_MAX:
        raise InvalidSpec("tags", f"take at most {META_BYTES_MAX} bytes when encoded, not {len(meta)}")
    return meta


__all__ = ["meta_of", "tags_of"]
