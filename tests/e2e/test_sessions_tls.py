"""Agents and intruders on real loopback sockets with TLS, against the dispatcher on a real database."""

import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from beeyard.core.errors import PeerError
from beeyard.core.model import TaskStatus
from beeyard.core.states import NodeState, Role, TaskState
from beeyard.core.wire import (
    FRAME_BYTES_MAX,
    PROTOCOL_VERSION,
    Assignments,
    CaReply,
    CaRequest,
    FromManager,
    Heartbeat,
    Hello,
    IdentityReply,
    JoinRequest,
    LeaseRenewed,
    Refused,
    StatusAck,
    StatusReport,
    TaskReport,
    Welcome,
    from_manager_decoder,
)
from beeyard.manager import ca
from beeyard.manager.dispatch import Dispatcher, entrance
from beeyard.manager.store import Store
from beeyard.runtime import real, real_net
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Credentials
from tests.support.builders import a_service, a_task
from tests.support.dispatch_world import A_DESCRIPTION, Config

DAY_S = 86400.0


class Manager:
    """A dispatcher that really listens."""

    def __init__(self, host: real.RealHost, store: Store, authority: ca.Authority, address: str) -> None:
        self.host = host
        self.store = store
        self.authority = authority
        self.address = address
        self.port = int(address.rpartition(":")[2])

    def credentials(self, *, node_id: str, role: Role = Role.WORKER, age_s: float = 0.0) -> Credentials:
        """A certificate of the cluster's CA that the manager knows nothing of, made so long ago."""
        cluster = self.authority.cluster
        csr_pem, key_pem = self.host.pki.new_request()
        certificate_pem = self.host.pki.sign(
            (cluster.ca_certificate_pem, cluster.ca_key_pem),
            csr_pem,
            node_id=node_id,
            role=role,
            organization=cluster.id,
            now_s=time.time() - age_s,
            valid_s=DAY_S,
        )
        return Credentials(
            certificate_pem=certificate_pem, key_pem=key_pem, ca_certificate_pem=cluster.ca_certificate_pem
        )

    def stranger(self) -> Credentials:
        """TLS without a certificate, trusting the cluster's CA."""
        return Credentials(ca_certificate_pem=self.authority.cluster.ca_certificate_pem)

    @asynccontextmanager
    async def conversation(self, credentials: Credentials) -> AsyncIterator[FrameStream[FromManager]]:
        """An open connection with a bound on how long anything on it may take."""
        connection = await self.host.net.dial(self.address, credentials)
        with trio.fail_after(15):
            async with connection.stream:
                yield FrameStream(connection.stream, from_manager_decoder)

    async def ask(self, credentials: Credentials, *messages: object) -> FromManager | None:
        """Connect, say something, and give the first answer."""
        async with self.conversation(credentials) as frames:
            await frames.send(messages)
            return await frames.receive()

    async def join(self, token: str, hostname: str = "yard2") -> tuple[FromManager | None, Credentials]:
        csr_pem, key_pem = self.host.pki.new_request()
        answer = await self.ask(self.stranger(), JoinRequest(token=token, csr_pem=csr_pem, hostname=hostname))
        if not isinstance(answer, IdentityReply):
            return answer, Credentials()
        return answer, Credentials(
            certificate_pem=answer.certificate_pem, key_pem=key_pem, ca_certificate_pem=answer.ca_certificate_pem
        )


@asynccontextmanager
async def a_manager(path: Path) -> AsyncIterator[Manager]:
    host = real.host()
    async with trio.open_nursery() as nursery:
        store = await Store.open(host, str(path / "store.db"))
        await nursery.start(store.run)
        config = Config(listen="tcp://127.0.0.1:0", advertise="")
        authority = await ca.bootstrap(host, store, config)
        dispatcher = Dispatcher(host, store, config, authority)
        address = await nursery.start(dispatcher.run)
        yield Manager(host, store, authority, address)
        nursery.cancel_scope.cancel()


HELLO = Hello(protocol_version=PROTOCOL_VERSION, description=A_DESCRIPTION)


async def reason_of_refusal(manager: Manager, credentials: Credentials, *messages: object) -> str:
    """Why the manager says no, by a message or by TLS itself."""
    try:
        answer = await manager.ask(credentials, *messages)
    except (PeerError, trio.BrokenResourceError) as error:
        return str(error)
    assert isinstance(answer, Refused), answer
    return answer.reason


async def test_agent_joins_and_works_over_tls(tmp_path: Path) -> None:
    """The whole way: which CA, join, session, assignment, status, lease; and again after the manager's restart."""
    async with a_manager(tmp_path) as manager:
        token = manager.authority.join_token(Role.WORKER)
        reply = await manager.ask(Credentials(), CaRequest())
        assert isinstance(reply, CaReply)
        assert manager.host.pki.digest(reply.ca_certificate_pem) == token.split("-")[2]
        identity, credentials = await manager.join(token)
        assert isinstance(identity, IdentityReply)

        async with manager.conversation(credentials) as frames:
            await frames.send([HELLO, Heartbeat(number=1)])
            welcome = await frames.receive()
            assert isinstance(welcome, Welcome)
            assert welcome.manager_addresses == (manager.address,)
            assert isinstance(await frames.receive(), Assignments)
            assert await frames.receive() == LeaseRenewed(heartbeat_number=1)
            task = a_task(state=TaskState.ASSIGNED, node_id=identity.node_id)
            await manager.store.commit(lambda tx: (tx.create(a_service()), tx.create(task)))
            assignments = await frames.receive()
            assert isinstance(assignments, Assignments)
            assert [t.id for t in assignments.tasks] == ["t1"]
            report = TaskReport(task_id="t1", status=TaskStatus(state=TaskState.RUNNING, pid=7))
            await frames.send([StatusReport(number=1, reports=(report,))])
            assert await frames.receive() == StatusAck(number=1)
        assert manager.store.tasks["t1"].status.pid == 7
        assert manager.store.nodes[identity.node_id].status.address == "127.0.0.1"

    async with a_manager(tmp_path) as manager:
        assert manager.store.nodes[identity.node_id].status.state is NodeState.UNKNOWN
        async with manager.conversation(credentials) as frames:
            await frames.send([HELLO])
            assert isinstance(await frames.receive(), Welcome)
            assignments = await frames.receive()
        assert isinstance(assignments, Assignments)
        assert [(t.id, t.state) for t in assignments.tasks] == [("t1", TaskState.RUNNING)]
        assert manager.store.nodes[identity.node_id].status.state is NodeState.READY


async def test_identities_that_are_not_good_are_refused(tmp_path: Path) -> None:
    """Wrong, rotated, foreign, expired, unknown, superseded: each says what it is."""
    (tmp_path / "other").mkdir()
    async with a_manager(tmp_path) as manager, a_manager(tmp_path / "other") as other:
        token = manager.authority.join_token(Role.WORKER)
        fresh = await manager.authority.rotate_join_token(Role.WORKER)
        for bad, words in (
            ("SWMTKN-1-x", "not a join token"),
            (fresh[:-25] + "0" * 25, "not valid"),
            (token, "rotated"),
            (other.authority.join_token(Role.WORKER), "another cluster"),
            (manager.authority.join_token(Role.MANAGER), "one manager"),
        ):
            answer, _ = await manager.join(bad)
            assert isinstance(answer, Refused)
            assert words in answer.reason
        assert dict(manager.store.nodes) == {}

        identity, good = await manager.join(fresh)
        assert isinstance(identity, IdentityReply)
        before = dict(manager.store.nodes)
        ca_pem = manager.authority.cluster.ca_certificate_pem
        foreign = msgspec.structs.replace(other.credentials(node_id=identity.node_id), ca_certificate_pem=ca_pem)
        expired = manager.credentials(node_id=identity.node_id, age_s=3 * DAY_S)
        for credentials, words in (
            (expired, "expired"),
            (foreign, "another CA"),
            (manager.credentials(node_id="0" * 25), "not in this cluster"),
            (manager.credentials(node_id=identity.node_id), "superseded"),
            (manager.stranger(), "join first"),
        ):
            assert words in await reason_of_refusal(manager, credentials, HELLO)
        assert dict(manager.store.nodes) == before
        with pytest.raises(PeerError, match="not one of this cluster's CA"):
            await manager.host.net.dial(
                manager.address,
                msgspec.structs.replace(good, ca_certificate_pem=other.authority.cluster.ca_certificate_pem),
            )


async def test_agent_does_not_take_a_worker_for_a_manager(tmp_path: Path) -> None:
    """Somebody who has a worker's key cannot pose as the manager."""
    async with a_manager(tmp_path) as manager, trio.open_nursery() as nursery:
        listener = await manager.host.net.listen("tcp://127.0.0.1:0", lambda: manager.credentials(node_id="0" * 25))

        async def serve(connection: object) -> None:
            await trio.sleep_forever()

        nursery.start_soon(listener.serve, serve)
        with pytest.raises(PeerError, match="not a manager"):
            await manager.host.net.dial(listener.address, manager.stranger())
        nursery.cancel_scope.cancel()
        await listener.aclose()


async def raw(manager: Manager, data: bytes, *, tls: bool) -> bytes:
    """Send bytes and read until the manager hangs up; what it said."""
    stream: trio.abc.Stream
    if tls:
        stream = (await manager.host.net.dial(manager.address, manager.stranger())).stream
    else:
        stream = await trio.open_tcp_stream("127.0.0.1", manager.port)
    said = b""
    async with stream:
        try:
            await stream.send_all(data)
            while chunk := await stream.receive_some(65536):
                said += chunk
        except trio.BrokenResourceError:
            pass
    return said


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 4096, b"\x16\x03\x01\xff\xff" + b"z" * 70_000]
)
async def test_what_is_not_tls_is_hung_up_on(tmp_path: Path, data: bytes) -> None:
    """Plain HTTP, zeros, a broken handshake: ended at once, and the next agent gets in."""
    async with a_manager(tmp_path) as manager:
        with trio.fail_after(5):
            await raw(manager, data, tls=False)
            answer, _ = await manager.join(manager.authority.join_token(Role.WORKER))
        assert isinstance(answer, IdentityReply)
        assert len(manager.store.nodes) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"over the limit"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"x" * 300_000, b"over the limit"),
        (b"\0\0\0\4abcd", b"not a message"),
    ],
)
async def test_garbage_within_tls_is_refused_with_a_sentence(tmp_path: Path, data: bytes, words: bytes) -> None:
    """Also when more of it is still on its way: the reason arrives before the end."""
    async with a_manager(tmp_path) as manager:
        with trio.fail_after(5):
            said = await raw(manager, data, tls=True)
        assert words in said
        assert dict(manager.store.nodes) == {}


async def test_oversized_frame_in_a_session_ends_it_with_a_reason(tmp_path: Path) -> None:
    """A member of the cluster is held to the same limit."""
    async with a_manager(tmp_path) as manager:
        _, credentials = await manager.join(manager.authority.join_token(Role.WORKER))
        async with manager.conversation(credentials) as frames:
            await frames.send([HELLO])
            assert isinstance(await frames.receive(), Welcome)
            assert isinstance(await frames.receive(), Assignments)
            await frames._stream.send_all((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
            refused = await frames.receive()
        assert isinstance(refused, Refused)
        assert "over the limit" in refused.reason


async def test_half_open_connections_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that say nothing, before TLS or within it, and those that stop in the middle, are gone after the bound."""
    # The bounds of 10 s shortened, so that the test can wait for them.
    monkeypatch.setattr(real_net, "HANDSHAKE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(entrance, "FIRST_MESSAGE_S", 1.0)
    async with a_manager(tmp_path) as manager:
        with trio.fail_after(8):
            async with trio.open_nursery() as nursery:
                for data, tls in ((b"", False), (b"\x16\x03\x01", False), (b"", True), (b"\0\0\0\x09ab", True)):
                    for _ in range(10):
                        nursery.start_soon(lambda d=data, t=tls: raw(manager, d, tls=t))
        assert dict(manager.store.nodes) == {}


async def test_reset_connections_do_no_harm(tmp_path: Path) -> None:
    """Clients that vanish with a reset at any moment end themselves alone."""
    async with a_manager(tmp_path) as manager:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def vanish(stage: int) -> None:
            with socket.create_connection(("127.0.0.1", manager.port)) as plain:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if stage == 1:
                    plain.sendall(b"\x16\x03\x01\x02")
                elif stage == 2:
                    with context.wrap_socket(plain) as encrypted:
                        encrypted.sendall(b"\0\0\0\x09")

        for stage in (0, 1, 2) * 5:
            await trio.to_thread.run_sync(vanish, stage)
        answer, _ = await manager.join(manager.authority.join_token(Role.WORKER))
        assert isinstance(answer, IdentityReply)


async def test_fifty_clients_at_once_get_what_they_deserve(tmp_path: Path) -> None:
    """Good ones are let in while bad ones are refused, and only the good ones are in the store."""
    async with a_manager(tmp_path) as manager:
        token = manager.authority.join_token(Role.WORKER)
        good: list[str] = []
        refused: list[str] = []

        async def join(number: int) -> None:
            answer, credentials = await manager.join(token, f"host{number}")
            assert isinstance(answer, IdentityReply)
            answer = await manager.ask(credentials, HELLO)
            assert isinstance(answer, Welcome)
            good.append(answer.node_id)

        async def wrong_token(number: int) -> None:
            answer, _ = await manager.join(token[:-25] + f"{number:025d}")
            assert isinstance(answer, Refused)
            refused.append(answer.reason)

        async def wrong_certificate(number: int) -> None:
            age_s = 3 * DAY_S if number % 2 else 0.0
            credentials = manager.credentials(node_id=f"{number:025d}", age_s=age_s)
            refused.append(await reason_of_refusal(manager, credentials, HELLO))

        async def garbage(number: int) -> None:
            await raw(manager, bytes(range(number, 256)) * 40, tls=number % 2 == 0)
            refused.append("garbage")

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for number in range(52):
                    nursery.start_soon((join, wrong_token, wrong_certificate, garbage)[number % 4], number)
        assert len(refused) == 39
        assert sorted(manager.store.nodes) == sorted(good)
        assert len(good) == 13
    async with a_manager(tmp_path) as manager:
        assert sorted(manager.store.nodes) == sorted(good)
