"""The simulated ports keep what the real ones promise."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.errors import PeerError
from beeyard.core.states import Role
from beeyard.runtime.host import Connection
from beeyard.runtime.sim import EPOCH_S, SimWorld
from beeyard.runtime.sim_disk import SimDatabase
from beeyard.runtime.sim_pki import SimPki
from tests.support.conformance import (
    Identities,
    check_database,
    check_files,
    check_net,
    check_pki,
    check_unix,
    dial_and_exchange,
    serving,
)


async def test_sim_database_conforms(autojump_clock: MockClock) -> None:
    """The simulated database keeps what `Database` promises."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        await check_database(lambda: SimDatabase.open(host.machine.disk, host.life, "/state/store.db"))


async def test_sim_files_conform(autojump_clock: MockClock) -> None:
    """The simulated files keep what `Files` promises."""
    async with SimWorld(1) as world:
        await check_files(world.host("m1").files, "/var/lib/beeyard")


async def test_sim_pki_conforms(autojump_clock: MockClock) -> None:
    """Simulated certificates keep what `Pki` promises."""
    async with SimWorld(1) as world:
        check_pki(SimPki(world.generator("x")), EPOCH_S)


async def test_sim_net_conforms(autojump_clock: MockClock) -> None:
    """The simulated network keeps what `Net` promises, between machines and within one."""
    async with SimWorld(1) as world:
        server, client = world.host("m1"), world.host("a1")
        for address in ("tcp://0.0.0.0:2377", "tcp://m1:0", "tcp://10.9.0.1:0"):
            reached = address.replace("0.0.0.0", "10.9.0.1")
            await check_net(server.net, client.net, reached, Identities.of(server.pki, server.wall_now_s()))
        await check_net(server.net, server.net, reached, Identities.of(server.pki, server.wall_now_s()))


async def test_sim_unix_sockets_conform(autojump_clock: MockClock) -> None:
    """A local client is seen with its user id."""
    async with SimWorld(1) as world:
        host = world.host("m1")

        async def dial(address: str) -> Connection:
            return await world.dial("m1", address, uid=1000)

        await check_unix(host.net, dial, "/run/beeyard/docker.sock", 1000)


async def test_plain_client_of_an_encrypted_listener_is_refused(autojump_clock: MockClock) -> None:
    """Garbage and silence end the handshake as they do on a real machine."""
    async with SimWorld(1) as world:
        server, client = world.host("m1"), world.host("a1")
        manager = Identities.of(server.pki, server.wall_now_s()).node("m1", Role.MANAGER)

        async def unreachable(connection: Connection) -> None:
            raise AssertionError("no handshake, no handler")

        async with serving(server.net, "tcp://0.0.0.0:2377", unreachable, lambda: manager):
            garbage = await client.net.dial("tcp://m1:2377")
            await garbage.stream.send_all(b"GET / HTTP/1.1")
            assert await garbage.stream.receive_some() == b""
            before = trio.current_time()
            silent = await client.net.dial("tcp://m1:2377")
            assert await silent.stream.receive_some() == b""
            assert 10 <= trio.current_time() - before < 11
    assert world.handler_errors == []


async def test_clock_that_is_off_refuses_certificates(autojump_clock: MockClock) -> None:
    """A host whose clock runs far ahead finds the manager's certificate expired."""
    async with SimWorld(1) as world:
        server, client = world.host("m1"), world.host("a1")
        identities = Identities.of(server.pki, server.wall_now_s())
        manager, worker = identities.node("m1", Role.MANAGER), identities.node("a1")

        async def nothing(connection: Connection) -> None:
            await connection.stream.send_all(b"hello")

        async with serving(server.net, "tcp://0.0.0.0:2377", nothing, lambda: manager):
            client.machine.set_clock(skew_s=100 * 86400)
            with pytest.raises(PeerError, match="its certificate has expired"):
                await dial_and_exchange(client.net, "tcp://m1:2377", worker)
