"""The users' client: what it says when there is no answer."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.runtime.host import Connection, Host
from beeyard.runtime.sim import SimWorld
from tests.sim.api import ClusterApi, Request, Unanswered

SOCKET = "unix:///run/test.sock"


async def silent_daemon(host: Host) -> None:
    """Accepts and never answers."""

    async def stay(connection: Connection) -> None:
        await trio.sleep_forever()

    await (await host.net.listen(SOCKET)).serve(stay)


async def test_a_power_cut_leaves_a_request_unanswered_and_over(autojump_clock: MockClock) -> None:
    """The client sits on the machine that loses power; nothing of the request is left."""
    async with SimWorld(1) as world:
        world.start("m1", silent_daemon)
        await trio.sleep(1)
        request = ClusterApi(world, "m1", SOCKET).request("GET", "/info")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_answer, request)
            await trio.sleep(1)
            assert not request.is_over
            world.power_cut("m1")
        assert request.is_over


async def test_a_request_stays_open_while_a_paused_manager_has_it(autojump_clock: MockClock) -> None:
    """The client gives up; what it sent is still read when the manager goes on."""
    async with SimWorld(1) as world:
        world.start("m1", silent_daemon)
        await trio.sleep(1)
        world.pause("m1")
        request = ClusterApi(world, "m1", SOCKET).request("GET", "/info")
        await expect_no_answer(request)
        assert not request.is_over
        world.resume("m1")
        await trio.sleep(1)
        assert not request.is_over
        world.crash("m1")
        await trio.sleep(1)
        assert request.is_over


async def expect_no_answer(request: Request) -> None:
    """Ask."""
    with pytest.raises(Unanswered):
        await request.answer()
