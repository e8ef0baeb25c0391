"""A manager as the server of others' lists, and what its API tells of them."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from beeyard.core.errors import PeerError
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import Member
from beeyard.discovery.published.backend import OTHERS
from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.url import parse_url
from beeyard.manager.api.token_service import COMPLETE_AFTER_S, TokenService
from beeyard.manager.config import ManagerConfig
from beeyard.manager.published import GossipMembers, PublishedLists, owner_name
from tests.support.api_world import CLUSTER, ApiWorld, an_api
from tests.support.asgi_server import AsgiServer
from tests.support.fake_etcd import FakeEtcd
from tests.support.fake_lists import FakeMachine, FakeWorld, Members
from tests.support.lists_conformance import A, B, C, Place, check_place, check_publishing, until

TTL_S = 30.0


class Service:
    """A world with one manager that serves tokens at m1:3380."""

    def __init__(self, api: ApiWorld) -> None:
        self.api = api
        self.world = FakeWorld()
        self.start()
        self.url = self.service.new_url()

    def start(self) -> None:
        """Also again: what was in memory is gone."""
        self.api.host.wall_ahead_s += 1.0  # type: ignore[attr-defined]
        self.service = TokenService(self.api.host, self.api.store)  # type: ignore[arg-type]
        self.service.address = "m1:3380"
        self.api.status.tokens = self.service
        self.world.http["m1:3380"] = AsgiServer(self.service)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, object]:
        answer = await self.world.http["m1:3380"].answer(method, path, body)
        return answer.status, json.loads(answer.body) if answer.body else None

    @property
    def token(self) -> str:
        return self.url.rpartition("/")[2]


@asynccontextmanager
async def a_service() -> AsyncIterator[Service]:
    async with an_api(msgspec.structs.replace(CLUSTER, ca_key_pem=b"key")) as api:
        service = Service(api)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.world.run)
            yield service
            nursery.cancel_scope.cancel()


class On:
    def __init__(self, service: Service) -> None:
        self.ports: FakeMachine = service.world.machine()
        self.url = service.url

    def cut(self) -> None:
        self.ports.link.cut()

    def mend(self) -> None:
        self.ports.link.mend()


def a_place(service: Service) -> Place:
    async def machine() -> On:
        return On(service)

    async def write(entry: str) -> None:
        assert (await service.ask("POST", f"/clusters/{service.token}?ttl=3600", entry.encode()))[0] == 204

    return Place(machine=machine, ttl_s=TTL_S, expiry_s=TTL_S + 1.0, write=write, leases_end=False, patience_s=1.0)


async def test_a_token_is_a_place_like_any_other(autojump_clock: trio.testing.MockClock) -> None:
    """It keeps all promises."""
    async with a_service() as service:
        await check_place(a_place(service))


async def test_a_service_that_starts_again_loses_no_node(autojump_clock: trio.testing.MockClock) -> None:
    """It says that it is not complete until managers have come back; its tokens are still good."""
    async with a_service() as service:

        async def outage() -> None:
            service.world.down.drop()
            service.start()
            with pytest.raises(PeerError, match="has just started"):
                await open_backend(parse_url(service.url), service.world.machine()).read()
            await trio.sleep(COMPLETE_AFTER_S)

        await check_publishing(a_place(service), outage)


async def test_classic_swarm_reads_and_writes_at_it(autojump_clock: trio.testing.MockClock) -> None:
    """One entry at a time, for a time, and all entries as a JSON list."""
    async with a_service() as service:
        path = f"/clusters/{service.token}"
        assert await service.ask("GET", path) == (200, [])
        assert await service.ask("POST", f"{path}?ttl=30", B.encode()) == (204, None)
        backend = open_backend(parse_url(service.url), service.world.machine())
        await (await backend.lease("m1", TTL_S)).put([A])
        assert await service.ask("GET", path) == (200, [A, B])
        assert await backend.read() == {"m1": (A,), OTHERS: (B,)}
        await trio.sleep(31.0)
        assert await service.ask("GET", path) == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/clusters", b"", 403, "beeyard discovery-token"),
        ("GET", "/clusters/0123", b"", 404, "token 0123 not found"),
        ("PUT", "/clusters/0123/lists/m1", b"[]", 404, "not found"),
        ("PUT", "/clusters/{}/lists/m1", b"{}", 400, "JSON list of texts"),
        ("PUT", "/clusters/{}/lists/m1", b'["x"]', 400, "HOST:PORT"),
        ("PUT", "/clusters/{}/lists/m1", b"[", 400, "invalid JSON"),
        ("PUT", "/clusters/{}/lists/m1?ttl=nan", b"[]", 400, "must be a number"),
        ("PUT", "/clusters/{}/lists/m1?ttl=-1", b"[]", 400, "seconds"),
        ("POST", "/clusters/{}", b"\xff", 400, "HOST:PORT"),
        ("GET", "/clusters/{}/lists?after=x", b"", 400, "must be a number"),
        ("GET", "/", b"", 404, "nothing here"),
        ("PATCH", "/clusters/{}", b"", 405, "nothing here"),
    ],
)
async def test_what_is_wrong_is_said(method: str, path: str, body: bytes, status: int, words: str) -> None:
    """In Docker's form, as all errors; nothing else of the API is served there."""
    async with a_service() as service:
        found, said = await service.ask(method, path.format(service.token), body)
        assert (found, isinstance(said, dict)) == (status, True)
        assert words in str(said)


async def test_the_api_makes_tokens_and_shows_what_is_published(autojump_clock: trio.testing.MockClock) -> None:
    """Over HTTP, in the figures for Prometheus and as warnings."""
    async with a_service() as service:
        api = service.api
        made = await api.call("POST", "/beeyard/v1/discovery/token")
        assert (made.status, made.json["Url"][:16]) == (201, "token://m1:3380/")
        assert made.json["CaCertificate"].startswith("-----BEGIN CERTIFICATE-----")
        assert (await api.call("GET", "/beeyard/v1/discovery")).message.startswith("this manager has no discovery URL")
        assert b"beeyard_discovery" not in (await api.call("GET", "/beeyard/v1/metrics")).body

        etcd = FakeEtcd()
        service.world.http["e1:2379"] = etcd
        etcd.put("/docker/swarm/nodes/c", C)
        published = a_manager(service.world, Members(A, B))
        api.status.published = published
        async with trio.open_nursery() as nursery:
            await nursery.start(published.run)
            await until(lambda: len(published.union.entries()) == 3, 2.0)
            shown = await api.get("/beeyard/v1/discovery")
            assert shown["Nodes"] == [A, B, C]
            assert shown["Lists"] == [
                {"Owner": "", "Nodes": [C], "Missed": False},
                {"Owner": "yard1-abcdefghij", "Nodes": [A, B], "Missed": False},
            ]
            assert shown["Published"] == {"Owner": "yard1-abcdefghij", "Nodes": [A, B], "Error": ""}
            figures = (await api.call("GET", "/beeyard/v1/metrics")).body.decode().splitlines()
            for figure in ("nodes 3", "lists 1", "readable 1", "published 1", "own_nodes 2", "writes_total 1"):
                assert f"beeyard_discovery_{figure}" in figures
            assert published.warnings == []
            service.world.down.cut()
            await until(lambda: len(published.warnings) == 2, 40.0)
            assert published.warnings == [
                "cannot read etcd://e1:2379: cannot reach e1:2379: connection refused; the 3 nodes known are kept",
                "cannot publish at etcd://e1:2379: cannot reach e1:2379: connection refused",
            ]
            figures = (await api.call("GET", "/beeyard/v1/metrics")).body.decode().splitlines()
            assert {"beeyard_discovery_readable 0", "beeyard_discovery_published 0"} <= set(figures)
            nursery.cancel_scope.cancel()


def a_manager(world: FakeWorld, members: Members | None, url: str = "etcd://e1:2379") -> PublishedLists:
    machine = world.machine()
    machine.rng = random.Random(1)  # type: ignore[attr-defined]
    config = ManagerConfig(discovery_url=url)
    return PublishedLists(machine, config, owner_name("yard1", "abcdefghijklmno"), members)  # type: ignore[arg-type]


async def test_a_manager_without_gossip_only_reads(autojump_clock: trio.testing.MockClock) -> None:
    """It publishes no list, not even an empty one; nor does any manager at a fixed list."""
    async with a_service() as service:
        etcd = FakeEtcd()
        service.world.http["e1:2379"] = etcd
        reader, fixed = a_manager(service.world, None), a_manager(service.world, Members(A), f"{B},{C}")
        async with trio.open_nursery() as nursery:
            await nursery.start(reader.run)
            await nursery.start(fixed.run)
            await until(lambda: reader.union.is_known and fixed.union.is_known, 2.0)
            assert (etcd.keys, reader.warnings, fixed.warnings) == ({}, [], [])
            assert fixed.union.entries() == (B, C)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("yard1", "yard1-abcdefghij"),
        ("a b/é", "a-b-abcdefghij"),
        ("..", "manager-abcdefghij"),
        ("x" * 99, "x" * 64 + "-abcdefghij"),
    ],
)
def test_an_owner_is_known_by_name_and_is_the_only_one(name: str, expected: str) -> None:
    """Whatever a host is called, every store takes it as a part of a key."""
    assert owner_name(name, "abcdefghijklmno") == expected


def test_gossip_members_are_those_alive_that_run_tasks() -> None:
    """Managers are no nodes, nor is who left. Before gossip has started, nobody knows."""

    class Gossip:
        def __init__(self, *members: Member) -> None:
            self._members = members

        def members(self) -> tuple[Member, ...]:
            return self._members

        async def changed(self) -> None:
            raise AssertionError("it does not change")

    manager = a_member("m1.manager", "10.0.0.1", "manager")
    agents = a_member("m1", "10.0.0.1", "agent"), a_member("w", "2001:db8::1", "agent")
    left = msgspec.structs.replace(agents[0], name="x", status="left")
    members = GossipMembers(Gossip(manager, *agents, left)).members()
    assert members == ["10.0.0.1:3388", "[2001:db8::1]:3388"]
    assert GossipMembers(Gossip(manager)).members() == []
    assert GossipMembers(Gossip()).members() is None


def a_member(name: str, host: str, role: str) -> Member:
    return Member(name=name, address=Address(host, 3388), tags={"role": role}, status="alive")
