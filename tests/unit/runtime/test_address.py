"""Addresses as text."""

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.runtime.address import TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://10.0.0.7:2377", TcpAddress("10.0.0.7", 2377)),
        ("tcp://yard1:0", TcpAddress("yard1", 0)),
        ("tcp://[fd00::1]:2377", TcpAddress("fd00::1", 2377)),
        ("unix:///run/beeyard/docker.sock", UnixAddress("/run/beeyard/docker.sock")),
    ],
)
def test_address_is_read_and_written_the_same(text: str, address: TcpAddress | UnixAddress) -> None:
    """Text and address are the same thing in both directions."""
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "tcp://host",
        "tcp://:1",
        "tcp://host:x",
        "tcp://host:65536",
        "tcp://fd00::1:80",
        "host:1",
        "unix://a",
    ],
)
def test_what_is_no_address_is_refused_with_what_would_be(text: str) -> None:
    """The sentence shows how an address is written."""
    with pytest.raises(InvalidSpec, match=r"written (tcp|unix)://"):
        parse_address(text)
