"""What is said to nftables and read from it."""

from __future__ import annotations

import json

import pytest

from beeyard.runtime import nft_script
from beeyard.runtime.host_ports import Forward

FORWARDS = [
    Forward(protocol="udp", published=53, address="169.254.192.1", target=5353),
    Forward(protocol="tcp", published=8080, address="fd62::1", target=80),
    Forward(protocol="tcp", published=8080, address="169.254.192.1", target=80),
]


def test_a_script_says_the_whole_table_whatever_it_was() -> None:
    script = nft_script.whole_table("beeyard-x", FORWARDS, "byp", ["eth0", "eth1"], [])
    lines = script.splitlines()
    assert lines[0] == "add table inet beeyard-x"
    for name in ("tcp4", "tcp6", "udp4", "udp6", "sctp4", "sctp6"):
        assert f"flush map inet beeyard-x {name}" in lines
    assert "add element inet beeyard-x tcp4 { 8080 : 169.254.192.1 . 80 }" in lines
    assert "add element inet beeyard-x tcp6 { 8080 : fd62::1 . 80 }" in lines
    assert "add element inet beeyard-x udp4 { 53 : 169.254.192.1 . 5353 }" in lines
    assert 'add element inet beeyard-x opened4 { "eth0", "eth1" }' in lines
    assert not any(line.startswith("add element inet beeyard-x opened6") for line in lines)
    # Nothing of our links passes that was not translated, and the rules are there before any element leads to one.
    rules = [line.removeprefix("add rule inet beeyard-x ") for line in lines if line.startswith("add rule")]
    for chain in ("forward", "input"):
        of_chain = [rule for rule in rules if rule.startswith(chain)]
        assert of_chain.index(f'{chain} iifname "byp*" ct status dnat accept') < of_chain.index(
            f'{chain} iifname "byp*" drop'
        )
    assert lines.index(f"add rule inet beeyard-x {rules[-1]}") < lines.index(
        "add element inet beeyard-x tcp4 { 8080 : 169.254.192.1 . 80 }"
    )


def test_a_listing_is_read_back() -> None:
    listing = {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "inet", "name": "beeyard-x"}},
            {"map": {"name": "tcp4", "elem": [[8080, {"concat": ["169.254.192.1", 80]}]]}},
            {"map": {"name": "tcp6", "elem": [[8080, {"concat": ["fd62::1", 80]}]]}},
            {"map": {"name": "udp4", "elem": [[53, {"concat": ["169.254.192.1", 5353]}]]}},
            {"map": {"name": "udp6"}},
            {"set": {"name": "opened4", "elem": ["eth1", "eth0"]}},
            {"set": {"name": "opened6"}},
            {"chain": {"name": "forward"}},
        ]
    }
    encoded = json.dumps(listing).encode()
    assert nft_script.read_table(encoded) == sorted(FORWARDS)
    assert nft_script.read_opened(encoded) == (("eth0", "eth1"), ())


@pytest.mark.parametrize("listing", [b"", b"[]", b'{"nftables": [{"map": {"name": "tcp4", "elem": [[1, 2]]}}]}'])
def test_what_nft_does_not_print_is_an_error(listing: bytes) -> None:
    with pytest.raises(ValueError, match="nft printed something unexpected"):
        nft_script.read_table(listing)


@pytest.mark.parametrize("listing", [b"", b"[]", b'{"nftables": [{"set": {}}]}'])
def test_sets_that_nft_does_not_print_are_an_error(listing: bytes) -> None:
    with pytest.raises(ValueError, match="nft printed something unexpected"):
        nft_script.read_opened(listing)


def test_a_trial_leaves_nothing() -> None:
    assert nft_script.trial("t").endswith("delete table inet t\n")
