"""Host routes on the real kernel: the promises that the fake kernel keeps too."""

from __future__ import annotations

import pytest

from tests.support.netns import Lan, ip
from tests.support.real_host import RealHost, real_host
from tests.support.route_conformance import CASES

pytestmark = pytest.mark.netns


class RoutingHost(RealHost):
    """One with an IPv6 address on its parent, which goes with a link that goes down."""

    def __init__(self, lan: Lan, host: str) -> None:
        super().__init__(lan, host)
        self.set_parent_up(True)

    def set_up(self, interface: str, up: bool) -> None:
        super().set_up(interface, up)
        if up:
            ip(f"-n {self.name} addr replace fd00:9::2/64 dev {interface} nodad")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_routes_on_the_real_kernel(case):
    """See the case's own docstring."""
    with real_host(RoutingHost) as world:
        await case(world)
