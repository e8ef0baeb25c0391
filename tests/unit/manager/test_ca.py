"""The cluster's identity: tokens, certificates, and what a restart keeps of them."""

import re

import msgspec
import pytest
import trio

from beeyard.core.errors import DiskError
from beeyard.core.states import Role
from beeyard.core.wire import IdentityReply, JoinRequest, Refused
from beeyard.manager import ca
from beeyard.manager.ca import Authority
from beeyard.manager.store import Store
from tests.support.dispatch_world import Config, DispatchWorld, MemoryHost, a_dispatch_world
from tests.support.memory_database import MemoryDatabase


async def test_bootstrap_makes_the_cluster_once(autojump_clock: object) -> None:
    """A restart finds the same cluster, CA, secrets and node id."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        first = world.authority.cluster
    async with a_dispatch_world(database) as world:
        assert world.authority.cluster == first
    assert len({first.id, first.manager_node_id, first.worker_secret, first.manager_secret}) == 4


async def test_bootstrap_on_a_disk_that_refuses_makes_nothing(autojump_clock: object) -> None:
    """The manager does not start with an identity that it would forget."""
    database = MemoryDatabase()
    database.fail_when = lambda n: True
    host = MemoryHost(database)
    async with trio.open_nursery() as nursery:
        store = await Store.open(host, "/state/store.db")  # type: ignore[arg-type]
        await nursery.start(store.run)
        with pytest.raises(DiskError):
            await ca.bootstrap(host, store, Config())  # type: ignore[arg-type]
        assert store.cluster is None
        nursery.cancel_scope.cancel()


async def test_join_tokens_have_swarms_form_and_name_the_ca(autojump_clock: object) -> None:
    """Two roles, one CA."""
    async with a_dispatch_world() as world:
        worker, manager = (world.authority.join_token(role) for role in (Role.WORKER, Role.MANAGER))
        digest = world.host.pki.digest(world.authority.cluster.ca_certificate_pem)
        for token in (worker, manager):
            assert re.fullmatch(f"SWMTKN-1-{digest}-[0-9a-z]{{25}}", token)
        assert worker != manager
        assert world.authority.role_of_token(worker) is Role.WORKER
        assert world.authority.role_of_token(manager) is Role.MANAGER


async def test_rotation_changes_the_token_of_one_role_for_good(autojump_clock: object) -> None:
    """The old token is refused at once and after a restart; the other role's stays."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        old, manager = world.authority.join_token(Role.WORKER), world.authority.join_token(Role.MANAGER)
        new = await world.authority.rotate_join_token(Role.WORKER)
        assert new != old
    async with a_dispatch_world(database) as world:
        assert world.authority.join_token(Role.WORKER) == new
        assert isinstance(world.authority.role_of_token(old), Refused)
        assert world.authority.role_of_token(manager) is Role.MANAGER


async def test_a_node_cannot_be_called_anything(autojump_clock: object) -> None:
    """A name is one word in a command and a line of a log, whoever chose it."""
    async with a_dispatch_world() as world:
        csr_pem, _ = world.host.pki.new_request()
        token = world.authority.join_token(Role.WORKER)
        for hostname in ("yard 2", "yard2\n", "yard2\x1b[2J", "-f"):
            request = JoinRequest(token=token, csr_pem=csr_pem, hostname=hostname)
            reply = await world.authority.join(request, manager_node_connected=False)
            assert isinstance(reply, Refused)
            assert reply.reason.startswith(f"this node cannot be called {hostname!r}: a name has at most 255")


async def test_join_with_a_token_that_is_rotated_meanwhile_is_refused(autojump_clock: object) -> None:
    """A rotation that is stored before the node is counts."""
    async with a_dispatch_world() as world:
        token = world.authority.join_token(Role.WORKER)
        csr_pem, _ = world.host.pki.new_request()
        request = JoinRequest(token=token, csr_pem=csr_pem, hostname="yard2")
        answers: list[IdentityReply | Refused] = []

        async def join() -> None:
            answers.append(await world.authority.join(request, manager_node_connected=False))

        database_hold = trio.Event()
        world.host._database.hold = database_hold
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.authority.rotate_join_token, Role.WORKER)
            await trio.sleep(1)
            nursery.start_soon(join)
            await trio.sleep(1)
            database_hold.set()
        assert isinstance(answers[0], Refused)
        assert world.store.nodes == {}


async def test_managers_own_certificate_is_renewed_at_half_of_its_life(autojump_clock: object) -> None:
    """Nobody has to do anything, and it is the same between."""
    async with a_dispatch_world() as world:
        authority = world.authority
        first = authority.credentials()
        peer = world.host.pki.inspect(first.certificate_pem)
        assert (peer.node_id, peer.role) == (authority.cluster.manager_node_id, Role.MANAGER)
        world.host.wall_ahead_s = 44 * 86400.0
        assert authority.credentials() is first
        world.host.wall_ahead_s = 45 * 86400.0 + 1
        second = authority.credentials()
        assert world.host.pki.inspect(second.certificate_pem).not_after_s > peer.not_after_s
        assert second.ca_certificate_pem == first.ca_certificate_pem


async def renewed_serial(world: DispatchWorld, authority: Authority, node_id: str) -> str:
    answer = await authority.renew(node_id, world.host.pki.new_request()[0])
    assert isinstance(answer, IdentityReply)
    return world.host.pki.inspect(answer.certificate_pem).serial


async def test_renewals_that_are_lost_on_the_way_do_not_lock_a_node_out(autojump_clock: object) -> None:
    """The certificate in use stays valid, and so does any of the last renewals."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        serials = [await renewed_serial(world, world.authority, peer.node_id) for _ in range(5)]
        assert world.node(peer.node_id).renewed_serials == tuple(serials[1:])
        await world.session(peer)
        await world.session(msgspec.structs.replace(peer, serial=serials[2]))
        node = world.node(peer.node_id)
        assert (node.certificate_serial, node.renewed_serials) == (serials[2], tuple(serials[3:]))


async def test_renewal_for_a_node_that_is_gone_is_refused(autojump_clock: object) -> None:
    """No certificate without a node."""
    async with a_dispatch_world() as world:
        assert isinstance(await world.authority.renew("0" * 25, world.host.pki.new_request()[0]), Refused)


async def test_a_new_cluster_has_the_heartbeat_that_is_configured_and_keeps_it(autojump_clock: object) -> None:
    """What a manager is told later does not change a cluster that exists."""
    host = MemoryHost(MemoryDatabase())
    async with trio.open_nursery() as nursery:
        store = await Store.open(host, "/state/store.db")  # type: ignore[arg-type]
        await nursery.start(store.run)
        for told in (12.0, 3.0):
            authority = await ca.bootstrap(host, store, Config(), heartbeat_s=told)  # type: ignore[arg-type]
            assert authority.cluster.heartbeat_s == 12.0
        nursery.cancel_scope.cancel()
