"""What the keeping of host routes promises, on the real kernel and on the fake one alike."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Protocol

from beeyard.agent.routes import RouteKeeper
from beeyard.core.wire import HostRoute, Routes
from beeyard.netdrivers import codec_route, routes
from beeyard.runtime.host import Netlink

# An operator's own route, to the same address as one of ours.
DESTINATION = ipaddress.ip_network("10.8.0.3/32")
GATEWAY = ipaddress.ip_address("10.9.0.1")


class RouteWorld(Protocol):
    """One host with link eth0, addresses 10.9.0.2/24 and fd00:9::2/64."""

    @property
    def netlink(self) -> Netlink: ...

    def set_parent_up(self, up: bool) -> None:
        """Take eth0 down or up; the addresses are there again when it is up."""


def a_route(destination: str, via: str, parent: str = "eth0") -> HostRoute:
    """A route to a task on node n3."""
    return HostRoute(destination=destination, via=via, parent=parent, node="n3")


TWO = (a_route("10.8.0.3/32", "10.9.0.3"), a_route("fd08::3/128", "fd00:9::3"))


async def told(keeper: RouteKeeper, *wanted: HostRoute, complete: bool = True, removed: tuple[str, ...] = ()) -> None:
    """The manager says something, and it is done."""
    keeper.take(Routes(complete=complete, routes=wanted, removed=removed))
    await keeper.settle()


async def ways(world: RouteWorld) -> dict[str, list[str]]:
    """Our routes: destination → next hops."""
    return {d: [way.gateway for way in found] for d, found in (await routes.present(world.netlink)).items()}


async def routes_are_made_changed_and_taken_away(world: RouteWorld) -> None:
    """Both families; another next hop replaces the first; what a complete set does not name goes."""
    keeper = RouteKeeper(world.netlink)
    await told(keeper, *TWO)
    assert await ways(world) == {"10.8.0.3/32": ["10.9.0.3"], "fd08::3/128": ["fd00:9::3"]}
    changed = (
        a_route("10.8.0.3/32", "10.9.0.4"),
        a_route("fd08::3/128", "fd00:9::4"),
        a_route("10.8.0.5/32", "10.9.0.5"),
    )
    await told(keeper, *changed, complete=False)
    assert await ways(world) == {
        "10.8.0.3/32": ["10.9.0.4"],
        "fd08::3/128": ["fd00:9::4"],
        "10.8.0.5/32": ["10.9.0.5"],
    }
    await told(keeper, complete=False, removed=("10.8.0.3/32", "10.8.0.99/32"))
    assert sorted(await ways(world)) == ["10.8.0.5/32", "fd08::3/128"]
    await told(keeper, TWO[0])
    assert await ways(world) == {"10.8.0.3/32": ["10.9.0.3"]}
    await keeper.abandon()
    assert await ways(world) == {}


async def a_fault_keeps_no_other_waiting(world: RouteWorld) -> None:
    """A next hop nowhere near, no such interface, no next hop at all: the rest is made."""
    keeper = RouteKeeper(world.netlink)
    bad = (
        a_route("10.8.0.6/32", "192.0.2.1"),
        a_route("fd08::6/128", "fd99::1"),
        a_route("10.8.0.7/32", "10.9.0.3", "eth7"),
        a_route("10.8.0.8/32", ""),
        a_route("nonsense", "10.9.0.3"),
    )
    await told(keeper, *bad, *TWO)
    assert sorted(await ways(world)) == ["10.8.0.3/32", "fd08::3/128"]


async def a_new_life_takes_over_what_is_there(world: RouteWorld) -> None:
    """Nothing before the manager speaks; then what is not wanted any more goes, and nobody else's route is touched."""
    await told(RouteKeeper(world.netlink), *TWO)
    (eth0,) = [index for name, index in (await routes.links(world.netlink)).items() if name == "eth0"]
    operators = codec_route.set_route(DESTINATION, index=eth0, protocol=4, gateway=GATEWAY)
    await world.netlink.request(operators)
    keeper = RouteKeeper(world.netlink)
    keeper.begin_session()
    assert len(await ways(world)) == 2
    await told(keeper, TWO[1])
    assert await ways(world) == {"fd08::3/128": ["fd00:9::3"]}
    keeper.begin_session()
    keeper.assigned()
    await keeper.settle()
    assert await ways(world) == {}
    others = codec_route.read_routes(await world.netlink.request(codec_route.dump_routes()))
    assert [route.gateway for route in others if route.destination == DESTINATION] == [GATEWAY]


async def routes_lost_with_their_parent_are_made_again(world: RouteWorld) -> None:
    """The next complete look finds that they are gone."""
    keeper = RouteKeeper(world.netlink)
    await told(keeper, *TWO)
    world.set_parent_up(False)
    assert await ways(world) == {}
    world.set_parent_up(True)
    await told(keeper, *TWO)
    assert len(await ways(world)) == 2


CASES: tuple[Callable[[RouteWorld], Awaitable[None]], ...] = (
    routes_are_made_changed_and_taken_away,
    a_fault_keeps_no_other_waiting,
    a_new_life_takes_over_what_is_there,
    routes_lost_with_their_parent_are_made_again,
)
