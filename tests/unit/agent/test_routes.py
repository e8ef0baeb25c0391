"""Host routes on the fake kernel; `tests/e2e/test_routes.py` checks the same on the real one."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from beeyard.agent.routes import LOOK_S, RouteKeeper
from beeyard.core.model import Link
from beeyard.core.wire import Routes
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.counting_netlink import CountingNetlink
from tests.support.route_conformance import CASES, TWO, a_route, told, ways

ETH0 = Link(name="eth0", mtu=1500, up=True, addresses=("10.9.0.2/24", "fd00:9::2/64"))


class FakeWorld:
    """A fake kernel as a world."""

    def __init__(self) -> None:
        self.kernel = FakeKernel((ETH0,))
        self.netlink = self.kernel

    def set_parent_up(self, up: bool) -> None:
        if up:
            self.kernel.remove_link("eth0")
            self.kernel.add_link(ETH0)
        else:
            self.kernel.set_link_up("eth0", False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_routes_on_the_fake_kernel(case):
    """See the case's own docstring."""
    await case(FakeWorld())


async def test_a_fault_is_told_once_and_again_when_it_is_another():
    """Not at every look."""
    keeper = RouteKeeper(FakeWorld().netlink)
    with capture_logs() as logs:
        await told(keeper, a_route("10.8.0.6/32", "192.0.2.1"))
        await told(keeper, a_route("10.8.0.6/32", "192.0.2.1"))
        await told(keeper, a_route("10.8.0.6/32", "10.9.0.3", "eth7"))
    found = [(line["node"], line["reason"]) for line in logs if line["log_level"] == "warning"]
    assert found == [("n3", "Nexthop has invalid gateway"), ("n3", "there is no interface eth7")]


async def test_whichever_request_fails_the_next_look_puts_it_right():
    """The kernel refuses the Nth request; nothing breaks, and telling again gives all."""
    for n in range(1, 20):
        world = FakeWorld()
        netlink = CountingNetlink(world.kernel, fail_at=n)
        keeper = RouteKeeper(netlink)
        await told(keeper, *TWO)
        await told(keeper, *TWO)
        if netlink.calls >= n:
            await told(keeper, *TWO)
        assert len(await ways(world)) == 2
    assert netlink.calls < n, "the loop never reached the end"


@pytest.mark.parametrize("refused", [1, 2], ids=["when it is read", "when it is taken away"])
async def test_a_last_route_that_the_kernel_keeps_at_first_is_taken_away_later(autojump_clock, refused):
    """Nothing is wanted any more, so nobody says anything that would have the keeper look again."""
    world = FakeWorld()
    keeper = RouteKeeper(world.netlink)
    await told(keeper, TWO[0])
    keeper = RouteKeeper(CountingNetlink(world.kernel, fail_at=refused))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        keeper.clear()
        await trio.sleep(1)
        assert list(await ways(world)) == [TWO[0].destination]
        await trio.sleep(LOOK_S)
        assert list(await ways(world)) == []
        nursery.cancel_scope.cancel()


async def test_parts_count_when_the_last_has_come():
    """Until then the routes are as they were; a session that breaks off leaves no part behind."""
    world = FakeWorld()
    keeper = RouteKeeper(world.netlink)
    await told(keeper, *TWO)
    keeper.begin_session()
    keeper.take(Routes(complete=True, routes=TWO[:1], more=True))
    await keeper.settle()
    assert len(await ways(world)) == 2
    keeper.begin_session()
    keeper.take(Routes(complete=True, routes=(a_route("10.8.0.5/32", "10.9.0.5"),), more=True))
    keeper.take(Routes(complete=True, routes=TWO[1:]))
    await keeper.settle()
    assert sorted(await ways(world)) == ["10.8.0.5/32", "fd08::3/128"]
