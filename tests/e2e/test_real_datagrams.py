"""UDP of this machine, with multicast."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from beeyard.runtime.real_net import RealNet
from tests.support.datagram_conformance import check_datagrams, check_multicast, check_resolving


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_real_datagrams_conform(host: str) -> None:
    """The machine's own stack keeps what `Net.datagrams` promises, over both families."""
    await check_datagrams(RealNet(), RealNet(), host)


async def test_real_names_are_resolved() -> None:
    """By this machine's own resolver."""
    await check_resolving(RealNet(), "127.0.0.1", "localhost")


@pytest.fixture
def link() -> Iterator[str]:
    """A link of this host with addresses of both families."""
    run("ip link add bydgram0 type veth peer name bydgram1")
    try:
        run("ip link set bydgram0 addrgenmode none up")
        run("ip link set bydgram1 addrgenmode none up")
        run("ip address add 10.253.7.1/30 dev bydgram0")
        run("ip address add fe80::7/64 dev bydgram0 nodad")
        yield "bydgram0"
    finally:
        run("ip link delete bydgram0")


@pytest.mark.parametrize("group", ["224.0.0.251", "ff02::fb"])
async def test_real_multicast_conforms(group: str, link: str) -> None:
    """Programs of one host that share the port of mDNS all hear a group, on the link that is named."""
    await check_multicast(RealNet(), RealNet(), group, link)


def run(command: str) -> None:
    """Run a command that has to work."""
    subprocess.run(command.split(), check=True)
