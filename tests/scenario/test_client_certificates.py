"""Who may use the API from another machine, and who says so."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio.testing

from beeyard.core.states import Role
from beeyard.manager.api.app import App
from beeyard.manager.api.client_certificates import PATH
from beeyard.manager.api.context import Context
from beeyard.manager.api.http_server import HttpServer
from beeyard.manager.api.remote import ForClients
from beeyard.manager.client_certificates import ClientCertificates, ServerIdentity, server_names
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.host import Connection, PeerCertificate
from beeyard.runtime.sim_pki import SimPki
from tests.support.api_world import CLUSTER, ApiWorld, an_api
from tests.support.http_client import HttpClient

DAY_S = 86400.0


@asynccontextmanager
async def a_world() -> AsyncIterator[ApiWorld]:
    """The API of a manager whose CA works."""
    async with an_api() as world:
        pki = SimPki(random.Random(1))
        world.host.pki = pki  # type: ignore[attr-defined]
        certificate_pem, key_pem = pki.new_authority(CLUSTER.id, world.host.wall_now_s())
        await world.put(msgspec.structs.replace(CLUSTER, ca_certificate_pem=certificate_pem, ca_key_pem=key_pem))
        yield world


async def issue(world: ApiWorld, name: str, **fields: object) -> PeerCertificate:
    """Have a certificate made through the socket; what it says."""
    csr_pem, _ = world.host.pki.new_request()
    reply = await world.call("POST", PATH, {"Name": name, "Request": csr_pem.decode(), **fields})
    assert reply.status == 201, reply.body
    facts: PeerCertificate = world.host.pki.inspect(reply.json["Certificate"].encode())
    return facts


async def ask(world: ApiWorld, certificate: PeerCertificate | None, method: str = "GET", path: str = "/nodes"):
    """One request by TLS, whose handshake is done."""
    context = Context(world.host, world.store, world.status)
    server = HttpServer(ForClients(App(context), ClientCertificates(world.host, world.store)))
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        connection = Connection(stream=theirs, remote="tcp://10.0.0.9:4711", peer=certificate)
        nursery.start_soon(server.handle, connection)
        reply = await HttpClient(ours).request(method, path, b"", ())
        nursery.cancel_scope.cancel()
    return reply


async def test_a_certificate_is_good_until_it_is_revoked(autojump_clock: object) -> None:
    async with a_world() as world:
        anna, bob = await issue(world, "anna"), await issue(world, "bob")
        assert (anna.node_id, anna.role) == ("anna", Role.CLIENT)
        assert [one["Name"] for one in await world.get(PATH)] == ["anna", "bob"]
        assert (await ask(world, anna)).status == 200
        assert (await world.call("DELETE", f"{PATH}/anna")).json == {"Revoked": 1}
        reply = await ask(world, anna)
        assert (reply.status, reply.json["message"]) == (403, "the certificate of client anna was revoked")
        assert (await ask(world, bob)).status == 200
        assert (await world.call("DELETE", f"{PATH}/{bob.serial}")).json == {"Revoked": 1}
        assert (await ask(world, bob)).status == 403
        assert await world.get(PATH) == []
        assert (await world.call("DELETE", f"{PATH}/bob")).status == 404


async def test_nodes_and_strangers_are_no_clients(autojump_clock: object) -> None:
    async with a_world() as world:
        anna = await issue(world, "anna")
        for role in (Role.WORKER, Role.MANAGER):
            reply = await ask(world, msgspec.structs.replace(anna, role=role))
            assert (reply.status, reply.json["message"]) == (
                403,
                f"the certificate is one of a {role}, not of a client",
            )
        reply = await ask(world, None)
        assert reply.status == 403
        assert "a client certificate of this cluster is needed" in reply.json["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", PATH), ("POST", PATH), ("DELETE", f"{PATH}/anna")])
async def test_a_client_cannot_make_or_revoke_certificates(autojump_clock: object, method: str, path: str) -> None:
    async with a_world() as world:
        anna = await issue(world, "anna")
        reply = await ask(world, anna, method, path)
        assert (reply.status, reply.json["message"]) == (
            403,
            "client certificates are issued and revoked on the manager's own host alone",
        )
        assert len(await world.get(PATH)) == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"Name": ""}, "invalid Name: '' must be 1 to 63 letters, digits, '_', '.', '@' or '-'"),
        ({"Name": "a b"}, "invalid Name: 'a b' must be 1 to 63 letters, digits, '_', '.', '@' or '-'"),
        ({"Name": 3}, "invalid body: Name and Request must be texts, the latter a certificate request in PEM"),
        ({"Request": "nonsense"}, "invalid Request: not a certificate request"),
        ({"ValidSeconds": 0}, "invalid ValidSeconds: 0 s is not right: more than 0 s and at most 3650 days"),
        ({"ValidSeconds": "long"}, "invalid ValidSeconds: it must be a number"),
    ],
)
async def test_what_cannot_be_issued_is_named(autojump_clock: object, fields: dict[str, object], sentence: str) -> None:
    async with a_world() as world:
        csr_pem, _ = world.host.pki.new_request()
        reply = await world.call("POST", PATH, {"Name": "anna", "Request": csr_pem.decode(), **fields})
        assert (reply.status, reply.json["message"]) == (400, sentence)
        assert await world.get(PATH) == []


async def test_an_expired_certificate_leaves_the_list(autojump_clock: object) -> None:
    async with a_world() as world:
        await issue(world, "brief", ValidSeconds=60)
        await issue(world, "long", ValidSeconds=DAY_S)
        await trio.sleep(61)
        assert [one["Name"] for one in await world.get(PATH)] == ["long"]


async def test_the_servers_certificate_is_renewed_at_half_of_its_life(autojump_clock: object) -> None:
    async with a_world() as world:
        identity = ServerIdentity(world.host, world.store, ManagerConfig(api_listen="tcp://0.0.0.0:2376"))
        first = identity.credentials()
        await trio.sleep(44 * DAY_S)
        assert identity.credentials() is first
        await trio.sleep(2 * DAY_S)
        assert identity.credentials().certificate_pem != first.certificate_pem


def test_the_server_goes_by_every_name_that_is_known() -> None:
    config = ManagerConfig(
        api_listen="tcp://10.0.0.7:2376",
        api_names=("manager.example", "m1"),
        listen="tcp://0.0.0.0:2377",
        advertise="tcp://[fd00::7]:2377",
    )
    assert server_names(config, "m1") == ("manager.example", "m1", "localhost", "127.0.0.1", "10.0.0.7", "fd00::7")
