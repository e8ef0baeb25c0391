"""Host routes on the real kernel: the promises that the fake kernel keeps too."""

from __future__ import annotations

import contextlib
import os

import pytest

from beeyard.runtime.real_netlink import RealNetlink
from tests.support.netns import Lan, inside, ip
from tests.support.route_conformance import CASES

pytestmark = pytest.mark.netns


class RealWorld:
    """One host on a LAN; the test itself is in the host's namespace."""

    def __init__(self, host: str) -> None:
        self.netlink = RealNetlink()
        self._host = os.path.basename(host)
        self.set_parent_up(True)

    def set_parent_up(self, up: bool) -> None:
        ip(f"-n {self._host} link set eth0 {'up' if up else 'down'}")
        if up:  # IPv6 addresses go with a link that goes down
            ip(f"-n {self._host} addr replace fd00:9::2/64 dev eth0 nodad")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_routes_on_the_real_kernel(case):
    """See the case's own docstring."""
    with contextlib.closing(Lan()) as lan:
        host = lan.add_host(2)
        with inside(host):
            world = RealWorld(host)
            with contextlib.closing(world.netlink):
                await case(world)
