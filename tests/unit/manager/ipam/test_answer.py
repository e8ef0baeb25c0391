"""What an address from a plugin must be, and which words mean that there is none."""

from __future__ import annotations

import pytest

from beeyard.core.model import IPAMConfig
from beeyard.manager.ipam.answer import misfit, read_address, says_exhausted
from beeyard.manager.ipam.fault import quote

CONFIG = IPAMConfig(subnet="10.1.0.0/24", gateway="10.1.0.1", aux_addresses={"router": "10.1.0.2"})
CONFIG6 = IPAMConfig(subnet="fd00:1::/64")


@pytest.mark.parametrize(
    ("text", "config", "reason"),
    [
        ("10.1.0.9/24", CONFIG, ""),
        ("fd00:1::9/64", CONFIG6, ""),
        ("10.9.9.9/24", CONFIG, "which is not in 10.1.0.0/24"),
        ("10.1.0.9/16", CONFIG, "whose prefix length is not that of 10.1.0.0/24"),
        ("10.1.0.0/24", CONFIG, "which is the network or broadcast address of 10.1.0.0/24"),
        ("10.1.0.255/24", CONFIG, "which is the network or broadcast address of 10.1.0.0/24"),
        ("fd00:1::/64", CONFIG6, "which is the network or broadcast address of fd00:1::/64"),
        ("10.1.0.1/24", CONFIG, "which is the gateway"),
        ("10.1.0.2/24", CONFIG, "which is the auxiliary address router"),
        ("fd00:1::9/64", CONFIG, "which is not of IPv4"),
        ("10.1.0.9/24", CONFIG6, "which is not of IPv6"),
    ],
)
def test_misfits_are_named(text: str, config: IPAMConfig, reason: str) -> None:
    """Each way to be wrong has its own words."""
    address = read_address(text)
    assert address is not None
    assert misfit(address, config) == reason


@pytest.mark.parametrize("text", ["", "10.1.0.9", "10.1.0.9/", "10.1.0.9/33", "10.1.0/24", "a/24", "10.1.0.9/24/24"])
def test_what_is_no_address(text: str) -> None:
    """An address has a prefix length, and nothing else."""
    assert read_address(text) is None


@pytest.mark.parametrize(
    ("reason", "exhausted"),
    [
        ("no available addresses on the pool", True),
        ("No more IPs", True),
        ("address pool exhausted", True),
        ("database is locked", False),
        ("unknown pool", False),
    ],
)
def test_words_that_mean_exhausted(reason: str, exhausted: bool) -> None:
    """The protocol has no code for it."""
    assert says_exhausted(reason) is exhausted


def test_quotes_are_bounded_and_printable() -> None:
    """What a plugin says goes to a terminal: one line, no control characters, at most 200 of them."""
    assert quote("a\x1b[31m\nb\t c") == "a [31m b c"
    assert len(quote("x" * 5000)) == 201
