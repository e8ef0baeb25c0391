"""Which flows are stale: what the kernel says of each, as bytes."""

from __future__ import annotations

import ipaddress

import pytest

from beeyard.runtime import netlink_format as nl
from beeyard.runtime import real_conntrack

TASK, OLD_TASK, CLIENT = "169.254.192.1", "169.254.192.3", "192.0.2.9"
# The one address that every machine has.
HOST = "127.0.0.1"
ADDRESSES = {ipaddress.ip_address(TASK).packed}
DATAGRAMS = {(17, 53)}


def one_way(source: str, source_port: int, destination: str, port: int, protocol: int) -> bytes:
    """One direction of a flow: its addresses, then protocol and ports."""
    ip = nl.attribute(1, ipaddress.ip_address(source).packed) + nl.attribute(
        2, ipaddress.ip_address(destination).packed
    )
    numbers = nl.attribute(1, bytes([protocol])) + nl.attribute(2, source_port.to_bytes(2, "big"))
    numbers += nl.attribute(3, port.to_bytes(2, "big"))
    return nl.attribute(1, ip) + nl.attribute(2, numbers)


@pytest.mark.parametrize(
    ("what", "protocol", "port", "destination", "answers", "to", "stale"),
    [
        ("datagrams that nobody translated", 17, 53, HOST, HOST, CLIENT, True),
        ("datagrams to a task that is over", 17, 53, HOST, OLD_TASK, CLIENT, True),
        ("a flow to whoever had the address before", 6, 8080, HOST, TASK, CLIENT, True),
        ("datagrams to another port", 17, 54, HOST, HOST, CLIENT, False),
        ("a connection to the same number", 6, 53, HOST, HOST, CLIENT, False),
        ("questions of this host to another", 17, 53, "192.0.2.53", "192.0.2.53", CLIENT, False),
        ("what somebody else hides behind an address", 17, 53, HOST, HOST, "192.0.2.1", False),
    ],
)
def test_stale_flows_are_ours_alone(
    what: str, protocol: int, port: int, destination: str, answers: str, to: str, stale: bool
) -> None:
    found = {
        1: one_way(CLIENT, 7777, destination, port, protocol),
        2: one_way(answers, port, to, 7777, protocol),
    }
    assert real_conntrack._is_stale(found, ADDRESSES, DATAGRAMS) is stale, what


def test_a_description_without_both_ways_is_left_alone() -> None:
    assert not real_conntrack._is_stale({1: b""}, ADDRESSES, DATAGRAMS)


def test_what_to_look_for_is_found_in_the_kernels_bytes() -> None:
    flow = one_way(CLIENT, 7777, HOST, 53, 17)
    assert real_conntrack._port_attribute(53) in flow
    assert real_conntrack._port_attribute(7777) not in flow


def test_nothing_to_forward_asks_nobody() -> None:
    assert real_conntrack.forget([]) == 0
