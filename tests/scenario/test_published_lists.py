"""Lists of nodes at servers in memory: every place keeps the same promises, and no error loses a node."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.discovery.published.backend import OTHERS
from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.publisher import Publisher
from beeyard.discovery.published.union import Union
from beeyard.discovery.published.url import parse_url
from tests.support.fake_consul import FakeConsul
from tests.support.fake_etcd import FakeEtcd
from tests.support.fake_lists import FakeMachine, FakeWorld, Members
from tests.support.fake_zookeeper import FakeZooKeeperServer
from tests.support.lists_conformance import A, B, C, Place, check_place, check_publishing, until

TTL_S = 30.0


@dataclasses.dataclass
class On:
    """A machine, and the place as it is written there."""

    ports: FakeMachine
    url: str

    def cut(self) -> None:
        self.ports.link.cut()

    def mend(self) -> None:
        self.ports.link.mend()


@asynccontextmanager
async def a_world() -> AsyncIterator[FakeWorld]:
    """Servers of all kinds."""
    world = FakeWorld()
    world.http |= {"e1:2379": FakeEtcd(), "c1:8500": FakeConsul()}  # type: ignore[dict-item]
    world.zookeepers["z1:2181"] = FakeZooKeeperServer()
    world.files["/nodes"] = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.run)
        yield world
        nursery.cancel_scope.cancel()


URLS = {"etcd": "etcd://e1:2379/x", "consul": "consul://c1/x", "zk": "zk://z1/x", "file": "file:///nodes"}


def a_place(world: FakeWorld, kind: str) -> Place:
    """One of them."""

    async def machine() -> On:
        return On(world.machine(), URLS[kind])

    async def write(entry: str) -> None:
        for server in world.http.values():
            slash = "/" if isinstance(server, FakeEtcd) else ""
            server.put(f"{slash}x/docker/swarm/nodes/{entry}", entry)  # type: ignore[attr-defined]
        world.zookeepers["z1:2181"].put(f"/x/docker/swarm/nodes/{entry}", entry)
        world.files["/nodes"] = f"{entry} # by hand\n".encode() + world.files["/nodes"]

    return Place(
        machine=machine, ttl_s=TTL_S, expiry_s=TTL_S * 1.1 + 1.0, write=write, leases_end=kind != "file", patience_s=1.0
    )


@pytest.mark.parametrize("kind", URLS)
async def test_a_place_keeps_its_promises(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """Changes within a second, leases, takeovers without a gap, entries of classic Swarm."""
    async with a_world() as world:
        await check_place(a_place(world, kind))


def an_outage(world: FakeWorld, wreck: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def outage() -> None:
        world.down.cut()
        await trio.sleep(60.0)
        wreck()
        world.down.mend()

    return outage


@pytest.mark.parametrize("kind", URLS)
async def test_a_server_that_is_down_for_a_minute_loses_no_node(
    kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Leases count anew when it is back, as etcd and Consul have it."""
    async with a_world() as world:

        def restart() -> None:
            for server in world.http.values():
                server.restart()  # type: ignore[attr-defined]

        outage = None if kind == "file" else an_outage(world, restart)
        await check_publishing(a_place(world, kind), outage)


@pytest.mark.parametrize("kind", ["etcd", "consul"])
async def test_a_server_that_comes_back_empty_loses_no_node(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """What is missing after an interruption is missed before it is gone, and published again meanwhile."""
    async with a_world() as world:

        def lose() -> None:
            for server in world.http.values():
                server.lose_everything()  # type: ignore[attr-defined]

        await check_publishing(a_place(world, kind), an_outage(world, lose))


@asynccontextmanager
async def an_union(world: FakeWorld, url: str = URLS["etcd"]) -> AsyncIterator[Union]:
    """What a manager knows of the others."""
    union = Union(open_backend(parse_url(url), world.machine()), url, random.Random(3), grace_s=TTL_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(union.run)
        yield union
        nursery.cancel_scope.cancel()


async def test_a_broken_watch_goes_on_from_its_revision_with_all_read_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Also when what happened meanwhile was compacted away, and the list is gone in the end: it is missed, then it is not."""
    async with a_world() as world, an_union(world) as union:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{A}\n")
        await until(lambda: union.entries() == (A,), 5.0)
        n_watches = etcd.n_watches
        world.down.drop()
        etcd.put("/x/beeyard/docker/swarm/nodes/m2", f"{B}\n")
        etcd.compact()
        await until(lambda: union.entries() == (A, B) and not union.error, 1.0)
        assert etcd.n_watches == n_watches + 2
        etcd.put("/x/beeyard/docker/swarm/nodes/m2", f"{C}\n")
        await until(lambda: union.entries() == (A, C), 1.0)
        assert union.n_errors == 1


async def test_a_watch_from_a_revision_that_was_compacted_has_all_read_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """etcd ends such a watch; the next one begins at what was read."""
    async with a_world() as world:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        compact_once = iter([True])
        answer = etcd.answer

        async def answer_and_compact(method: str, target: str, body: bytes) -> object:
            said = await answer(method, target, body)
            if target.endswith("txn") and next(compact_once, False):
                etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{A}\n")
                etcd.put("/elsewhere", "x")
                etcd.compact()
            return said

        etcd.answer = answer_and_compact  # type: ignore[method-assign,assignment]
        async with an_union(world) as union:
            await until(lambda: union.entries() == (A,), 2.0)
            assert union.n_errors == 1


async def test_a_watch_that_died_without_a_word_is_found_out_within_two_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """All is read every minute, whatever watches tell."""
    async with a_world() as world, an_union(world) as union:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        await until(lambda: union.is_known, 5.0)
        etcd.deaf = True
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{A}\n")
        await trio.sleep(30.0)
        assert union.entries() == ()
        etcd.deaf = False
        await until(lambda: union.entries() == (A,), 61.0)
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{B}\n")
        await until(lambda: union.entries() == (B,), 2.0)


async def test_a_list_that_ends_while_all_is_well_is_gone_at_once_and_after_trouble_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Only an interruption makes a missing list doubtful."""
    async with a_world() as world, an_union(world) as union:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        for owner, entry in (("m1", A), ("m2", B)):
            etcd.put(f"/x/beeyard/docker/swarm/nodes/{owner}", entry)
        await until(lambda: union.entries() == (A, B), 5.0)
        etcd.delete("/x/beeyard/docker/swarm/nodes/m2")
        await until(lambda: union.entries() == (A,), 1.0)
        world.down.cut()
        await until(lambda: "connection refused" in union.error, 5.0)
        etcd.delete("/x/beeyard/docker/swarm/nodes/m1")
        world.down.mend()
        await until(lambda: union.missed == ("m1",), 6.0)
        await trio.sleep(TTL_S - 1.0)
        assert union.entries() == (A,)
        world.down.cut()  # while nothing can be read, nobody is forgotten
        await trio.sleep(2 * TTL_S)
        assert union.entries() == (A,)
        world.down.mend()
        await until(lambda: union.entries() == (), 6.0)


async def test_servers_are_tried_in_turn(autojump_clock: trio.testing.MockClock) -> None:
    """One of several etcd servers is enough."""
    async with a_world() as world, an_union(world, "etcd://e0:1,e1:2379,e9:1/x") as union:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", A)
        await until(lambda: union.entries() == (A,), 2.0)


async def test_a_publisher_that_starts_again_forgets_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """What its last life had published counts until gossip has had time; and nothing is published before gossip starts."""
    async with a_world() as world, an_union(world) as union:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{A}\n{B}\n")
        await until(lambda: union.entries() == (A, B), 5.0)
        members = Members()
        backend = open_backend(parse_url(URLS["etcd"]), world.machine())
        publisher = Publisher(backend, "x", members, "m1", random.Random(1), ttl_s=TTL_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publisher.run)
            await trio.sleep(1.0)
            assert union.entries() == (A, B)
            members.set(A)
            await trio.sleep(1.0)
            assert publisher.published == (A, B)
            members.set(A, C)
            await until(lambda: union.entries() == (A, B, C), 1.0)
            await until(lambda: union.entries() == (A, C), 4.0)
            nursery.cancel_scope.cancel()


async def test_a_lease_that_was_lost_is_replaced_and_long_leases_make_no_long_pauses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After an outage of any length, the list is there within seconds of the server."""
    async with a_world() as world:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        backend = open_backend(parse_url(URLS["etcd"]), world.machine())
        for ttl_s in (TTL_S, 3600.0):
            publisher = Publisher(backend, "x", Members(A), "m1", random.Random(1), ttl_s=ttl_s)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publisher.run)
                await until(lambda: len(etcd.keys) == 1, 1.0)
                world.down.cut()
                await trio.sleep(1000.0 if ttl_s == TTL_S else 4000.0)
                assert "connection refused" in publisher.error
                world.down.mend()
                etcd.tick()
                assert etcd.keys == {}
                await until(lambda: len(etcd.keys) == 1 and not publisher.error, 6.0)  # noqa: B023
                assert publisher.n_leases == 2
                nursery.cancel_scope.cancel()
            assert etcd.keys == {}


async def test_members_that_come_together_are_written_together(autojump_clock: trio.testing.MockClock) -> None:
    """Sixty joins within a second are a few writes; then only the lease is renewed."""
    async with a_world() as world:
        members = Members("10.0.0.1:1")
        backend = open_backend(parse_url(URLS["etcd"]), world.machine())
        publisher = Publisher(backend, "x", members, "m1", random.Random(1), ttl_s=TTL_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publisher.run)
            for n in range(2, 62):
                members.set(*(f"10.0.0.{k}:1" for k in range(1, n)))
                await trio.sleep(0.015)
            await trio.sleep(0.3)
            assert len(publisher.published or ()) == 60
            assert publisher.n_writes <= 7
            before = world.n_requests
            await trio.sleep(100.0)
            assert world.n_requests - before <= 12
            nursery.cancel_scope.cancel()


async def test_an_editor_that_empties_a_file_before_it_writes_loses_no_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two looks in a row have to agree. A file that cannot be read, or has a wrong line, changes nothing."""
    async with a_world() as world:
        world.files["/nodes"] = f"{A}\n".encode()
        async with an_union(world, URLS["file"]) as union:
            seen: list[tuple[str, ...]] = []
            await until(lambda: union.entries() == (A,), 2.0)
            for phase in range(1, 8):  # of the looks, which are 0.3 s apart
                world.files["/nodes"] = b""
                await trio.sleep(0.29)
                world.files["/nodes"] = f"{A}\n{B}\n".encode()
                for _ in range(50 + 2 * phase):
                    await trio.sleep(0.02)
                    seen.append(union.entries())
            assert set(seen) == {(A,), (A, B)}
            world.files["/nodes"] = b"nonsense\n"
            await until(lambda: "line 1" in union.error, 2.0)
            del world.files["/nodes"]
            await until(lambda: "no such file" in union.error, 10.0)
            assert union.entries() == (A, B)


async def test_who_writes_a_shared_file_leaves_out_what_is_over(autojump_clock: trio.testing.MockClock) -> None:
    """Else classic Swarm, which knows no leases, would read dead managers' nodes for ever."""
    async with a_world() as world:
        backend = open_backend(parse_url(URLS["file"]), world.machine())
        for owner, entry in (("m1", A), ("m2", B)):
            lease = await backend.lease(owner, TTL_S)
            await lease.put([entry])
            await trio.sleep(TTL_S + 1.0)
        assert A.encode() not in world.files["/nodes"]
        assert B.encode() in world.files["/nodes"]
        await lease.revoke()
        assert world.files["/nodes"] == b""


async def test_a_manager_that_starts_again_leaves_no_session_at_consul(autojump_clock: trio.testing.MockClock) -> None:
    """That of its last life ends when its key is taken over."""
    async with a_world() as world:
        consul = world.http["c1:8500"]
        assert isinstance(consul, FakeConsul)
        for _ in range(3):
            lease = await open_backend(parse_url(URLS["consul"]), world.machine()).lease("m1", TTL_S)
            await lease.put([A])
        assert len(consul.sessions) == 1
        await lease.revoke()
        assert (consul.sessions, consul.keys) == ({}, {})


async def test_published_lists_can_be_read_once(autojump_clock: trio.testing.MockClock) -> None:
    """Without a session or a watch that stays: lists of managers, and what classic Swarm wrote beside them."""
    async with a_world() as world:
        etcd = world.http["e1:2379"]
        assert isinstance(etcd, FakeEtcd)
        etcd.put("/x/beeyard/docker/swarm/nodes/m1", f"{B}\n{A}\n")
        etcd.put(f"/x/docker/swarm/nodes/{C}", C)
        found = await open_backend(parse_url(URLS["etcd"]), world.machine()).read()
        assert {owner: sorted(entries) for owner, entries in found.items()} == {"m1": [A, B], OTHERS: [C]}
        assert (await open_backend(parse_url(f"{A},{A}"), world.machine()).read())[OTHERS] == (A,)
