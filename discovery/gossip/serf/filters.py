"""Whom a query is for: by names, and by regular expressions on tags.

Source: Serf 0.9.4 serf/query.go (shouldProcessQuery).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beeyard.core.errors import InvalidSpec, RemoteProtocolError
from beeyard.discovery.gossip.serf.expression import STEPS_MAX, check, matches
from beeyard.discovery.gossip.wire.serf_codec import NodeFilter, TagFilter, decode_filter, encode_filter

N_FILTERS_MAX = 32  # more does not fit into a query of 1 KiB in any useful way
FILTER_BYTES_MAX = 4096  # together; agents of Serf send 1 KiB at most unless they are told otherwise


def encode_filters(nodes: Sequence[str], tags: Mapping[str, str]) -> tuple[bytes, ...]:
    """`Query.filters` for these names, none: all, and these expressions by tag.

    Raises:
        InvalidSpec: an expression cannot be understood.
    """
    for expression in tags.values():
        check(expression)
    by_name = [encode_filter(NodeFilter(names=tuple(nodes)))] if nodes else []
    return (*by_name, *(encode_filter(TagFilter(tag=tag, expression=tags[tag])) for tag in sorted(tags)))


def is_meant(filters: Sequence[bytes], name: str, tags: Mapping[str, str]) -> bool:
    """Whether a member passes all filters. It does not pass one that cannot be understood or takes too long."""
    if len(filters) > N_FILTERS_MAX or sum(map(len, filters)) > FILTER_BYTES_MAX:
        return False
    try:
        return all(_passes(blob, name, tags, STEPS_MAX // len(filters)) for blob in filters)
    except (RemoteProtocolError, InvalidSpec):
        return False


def _passes(blob: bytes, name: str, tags: Mapping[str, str], steps_max: int) -> bool:
    condition = decode_filter(blob)
    if isinstance(condition, NodeFilter):
        return name in condition.names
    return matches(condition.expression, tags.get(condition.tag, ""), steps_max=steps_max)


__all__ = ["FILTER_BYTES_MAX", "N_FILTERS_MAX", "encode_filters", "is_meant"]
