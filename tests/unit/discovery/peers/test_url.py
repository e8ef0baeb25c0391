"""URLs that say how peers are found."""

from __future__ import annotations

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers.url import Search, is_search, parse_peer, parse_search


@pytest.mark.parametrize(
    ("urls", "search"),
    [
        (["self://"], Search(port=3388)),
        (["self:///"], Search(port=3388)),
        (["self://:4400"], Search(port=4400)),
        (["self://:4400/", "self://:4400"], Search(port=4400)),
        (["serf://10.0.0.7"], Search(port=7946, given=(Address("10.0.0.7", 7946),))),
        (
            ["serf://10.0.0.7,host2:7000", "serf://host2:7000/"],
            Search(port=7946, given=(Address("10.0.0.7", 7946), Address("host2", 7000))),
        ),
        (["serf://[fd77::1]:1,fd77::2"], Search(port=7946, given=(Address("fd77::1", 1), Address("fd77::2", 7946)))),
        (["self://", "serf://h:3388"], Search(port=3388, given=(Address("h", 3388),))),
        ([], None),
    ],
)
def test_urls_say_a_port_and_addresses(urls, search):
    """`self://` says where, `serf://` says whom."""
    assert parse_search(urls) == search


@pytest.mark.parametrize(
    ("urls", "sentence"),
    [
        (["self://10.0.0.1:3388"], "it is self:// or self://:PORT, which names no host"),
        (["self://:0"], "it is self:// or self://:PORT"),
        (["self://:66000"], "it is self:// or self://:PORT"),
        (["self://:x"], "it is self:// or self://:PORT"),
        (["self://:1", "self://:2"], "a daemon gossips on one port, give one"),
        (["serf://"], "names nobody"),
        (["serf://,"], "names nobody"),
        (["serf://a/b"], "a peer is HOST or HOST:PORT"),
        (["serf://a:0"], "a peer is HOST or HOST:PORT"),
        (["serf://a:port"], "a peer is HOST or HOST:PORT"),
        (["serf://a b"], "a peer is HOST or HOST:PORT"),
    ],
)
def test_what_is_no_search_is_refused_with_what_would_be_right(urls, sentence):
    """The sentence names what was given."""
    with pytest.raises(InvalidSpec) as refused:
        parse_search(urls)
    assert sentence in str(refused.value)


def test_only_urls_of_a_search_are_one():
    """A manager's address is none."""
    assert [is_search(text) for text in ("self://", "serf://x", "10.0.0.1:2377", "tcp://h:1")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_peer_without_a_port_has_the_one_that_is_usual():
    """Also an IPv6 address without brackets."""
    assert parse_peer("fd77::2", 9) == Address("fd77::2", 9)
    assert parse_peer("[fd77::2]", 9) == Address("fd77::2", 9)
    assert parse_peer("h:8", 9) == Address("h", 8)
