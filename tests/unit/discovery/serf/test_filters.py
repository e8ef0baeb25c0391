"""Whom a query is for."""

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.serf.filters import FILTER_BYTES_MAX, N_FILTERS_MAX, encode_filters, is_meant
from beeyard.discovery.gossip.wire.serf_codec import NodeFilter, encode_filter

TAGS = {"role": "web", "zone": "eu-1"}


@pytest.mark.parametrize(
    ("nodes", "tags", "is_for_b"),
    [
        ((), {}, True),
        (("b",), {}, True),
        (("a", "b"), {}, True),
        (("a",), {}, False),
        ((), {"role": "web"}, True),
        ((), {"role": "^w.b$"}, True),
        ((), {"role": "db"}, False),
        ((), {"absent": "^$"}, True),
        ((), {"absent": "x"}, False),
        ((), {"role": "web", "zone": "^eu"}, True),
        ((), {"role": "web", "zone": "^us"}, False),
        (("b",), {"zone": "us"}, False),
    ],
)
def test_query_is_for_who_passes_every_filter(nodes: tuple[str, ...], tags: dict[str, str], is_for_b: bool) -> None:
    """Names and expressions on tags, an absent tag being empty."""
    assert is_meant(encode_filters(nodes, tags), "b", TAGS) == is_for_b


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\x01\xc1", b"\x07abc", b"\x01\x82\xa3Tag\xa1a\xa4Expr\xa1("])
def test_query_with_a_filter_that_cannot_be_understood_is_for_nobody(blob: bytes) -> None:
    """Better no answer than one from a member that was not meant."""
    assert not is_meant([blob], "b", TAGS)


def test_query_with_a_heap_of_filters_is_for_nobody() -> None:
    """A peer cannot make a member work for long."""
    one = encode_filter(NodeFilter(names=("b",)))
    assert is_meant([one] * N_FILTERS_MAX, "b", TAGS)
    assert not is_meant([one] * (N_FILTERS_MAX + 1), "b", TAGS)
    large = encode_filter(NodeFilter(names=("b", "x" * (FILTER_BYTES_MAX // 2))))
    assert is_meant([large], "b", TAGS)
    assert not is_meant([large, large], "b", TAGS)


def test_own_expression_is_checked_before_it_is_sent() -> None:
    """Every member would pass over it in silence."""
    with pytest.raises(InvalidSpec, match="missing"):
        encode_filters((), {"role": "(web"})
