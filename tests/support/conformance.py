"""What every implementation of a port promises, checked the same way on the real and on the simulated one."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.core.errors import DiskError, HostError, PeerError, PortClosed, RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime.host import Compacted, Connection, Credentials, Database, Files, Net, Pki, Record

DAY_S = 86400.0


# --- database --------------------------------------------------------------------------------------------------------


def a_record(index: int, object_id: str = "a", data: bytes | None = b"x", kind: str = "task") -> Record:
    """A record with everything but its index filled in."""
    return Record(index=index, kind=kind, id=object_id, data=data)


async def check_database(open_database: Callable[[], Awaitable[Database]]) -> None:
    """Everything that `Database` promises; `open_database` opens the same, at first empty, database each time."""
    database = await open_database()
    assert await database.load() == (0, [])
    assert await database.changes(0) == []
    await database.commit([])
    await database.commit([a_record(1, "a", b"one"), a_record(2, "b", b"two"), a_record(5, "a", b"three")])
    await database.commit([a_record(6, "b", None), a_record(7, "b", b"node", kind="node")])
    alive = [a_record(5, "a", b"three"), a_record(7, "b", b"node", kind="node")]
    assert await database.load() == (7, alive)
    assert await database.changes(2) == [
        a_record(5, "a", b"three"),
        a_record(6, "b", None),
        a_record(7, "b", b"node", kind="node"),
    ]
    with pytest.raises(AssertionError):
        await database.commit([a_record(7)])
    with pytest.raises(AssertionError):
        await database.commit([a_record(9), a_record(8)])
    with pytest.raises(DiskError, match="has it open"):
        await open_database()
    await _check_database_reopened(database, open_database, alive)


async def _check_database_reopened(
    database: Database, open_database: Callable[[], Awaitable[Database]], alive: list[Record]
) -> None:
    """What was committed is there after closing; the log is cut at 10,000 and says so."""
    await database.aclose()
    await database.aclose()
    with pytest.raises(DiskError):
        await database.commit([a_record(8)])
    database = await open_database()
    assert await database.load() == (7, alive)
    await database.commit([a_record(index, f"n{index}") for index in range(8, 10_008)])
    assert len(await database.changes(7)) == 10_000
    with pytest.raises(Compacted):
        await database.changes(6)
    await database.commit([a_record(10_008, f"n{index}", None) for index in (8,)])
    with pytest.raises(Compacted):
        await database.changes(7)
    assert len(await database.changes(10_000)) == 8
    await database.aclose()
    database = await open_database()
    with pytest.raises(Compacted):
        await database.changes(7)
    index, records = await database.load()
    assert (index, len(records)) == (10_008, 2 + 9_999)
    await database.aclose()


# --- files -----------------------------------------------------------------------------------------------------------


async def check_files(files: Files, directory: str) -> None:
    """Everything that `Files` promises, in a directory that does not exist yet."""
    path = f"{directory}/state/node.json"
    assert await files.read(path) is None
    assert await files.list(directory) == []
    await files.remove(path)
    await files.replace(path, b"one")
    assert await files.read(path) == b"one"
    await files.replace(path, b"")
    assert await files.read(path) == b""
    await files.replace(f"{directory}/state/key.pem", b"secret", mode=0o600)
    await files.replace(f"{directory}/state/deeper/x", b"x")
    assert await files.list(f"{directory}/state") == ["key.pem", "node.json"]
    with pytest.raises(DiskError, match=r"(?i)is a directory"):
        await files.read(f"{directory}/state")
    await files.remove(path)
    await files.remove(path)
    assert await files.list(f"{directory}/state") == ["key.pem"]
    with pytest.raises(DiskError):
        await files.replace(f"{directory}/state/key.pem/below-a-file", b"x")
    await files.append(f"{directory}/log/1", b"one, ")
    await files.append(f"{directory}/log/1", b"two")
    assert await files.read(f"{directory}/log/1") == b"one, two"
    with pytest.raises(DiskError):
        await files.append(f"{directory}/log/1/below-a-file", b"x")
    async with trio.open_nursery() as nursery:
        for text in (b"a" * 1000, b"b" * 1000, b"c" * 1000):
            nursery.start_soon(files.replace, path, text)
    content = await files.read(path)
    assert content in (b"a" * 1000, b"b" * 1000, b"c" * 1000)


# --- identities ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Identities:
    """A CA and certificates of it, for tests of `Net` and of those above."""

    pki: Pki
    now_s: float
    authority: tuple[bytes, bytes]
    organization: str = "cluster1"

    @classmethod
    def of(cls, pki: Pki, now_s: float) -> Identities:
        """A fresh CA."""
        return cls(pki=pki, now_s=now_s, authority=pki.new_authority("cluster1", now_s))

    def node(
        self,
        node_id: str,
        role: Role = Role.WORKER,
        *,
        valid_s: float = 90 * DAY_S,
        trust: bytes | None = None,
        signed_at_s: float | None = None,
    ) -> Credentials:
        """What a node shows and believes."""
        csr, key = self.pki.new_request()
        certificate = self.pki.sign(
            self.authority,
            csr,
            node_id=node_id,
            role=role,
            organization=self.organization,
            now_s=self.now_s if signed_at_s is None else signed_at_s,
            valid_s=valid_s,
        )
        return Credentials(
            certificate_pem=certificate,
            key_pem=key,
            ca_certificate_pem=self.authority[0] if trust is None else trust,
        )


def check_pki(pki: Pki, now_s: float) -> None:
    """Everything that `Pki` promises."""
    identities = Identities.of(pki, now_s)
    ca = identities.authority[0]
    one, two = identities.node("n1", Role.MANAGER), identities.node("n2")
    facts = pki.inspect(one.certificate_pem)
    assert (facts.node_id, facts.role) == ("n1", Role.MANAGER)
    assert facts.not_after_s == pytest.approx(now_s + 90 * DAY_S, abs=1)
    assert facts.serial != pki.inspect(two.certificate_pem).serial
    assert one.key_pem != two.key_pem
    digest = pki.digest(ca)
    assert len(digest) == 50
    assert digest.isalnum()
    assert digest == digest.lower()
    assert digest == pki.digest(ca)
    assert digest != pki.digest(pki.new_authority("cluster1", now_s)[0])
    for garbage in (b"", b"garbage", one.key_pem, ca):
        with pytest.raises(RemoteProtocolError):
            pki.inspect(garbage)
    client = identities.node("anna", Role.CLIENT)
    assert (pki.inspect(client.certificate_pem).node_id, pki.inspect(client.certificate_pem).role) == (
        "anna",
        Role.CLIENT,
    )
    csr, _ = pki.new_request()
    for garbage in (b"", b"garbage", csr[: len(csr) // 2], one.certificate_pem):
        with pytest.raises(RemoteProtocolError):
            pki.sign(
                identities.authority,
                garbage,
                node_id="n3",
                role=Role.WORKER,
                organization="cluster1",
                now_s=now_s,
                valid_s=DAY_S,
            )


# --- network ---------------------------------------------------------------------------------------------------------


async def check_net(server: Net, client: Net, address: str, identities: Identities) -> None:
    """Everything that `Net` promises about "tcp://" addresses, with and without TLS."""
    await _check_plain(server, client, address)
    await _check_encrypted(server, client, address, identities)
    await _check_refusals(server, client, address, identities)
    await _check_silence(server, client, address, identities)


async def check_unix(net: Net, dial: Callable[[str], Awaitable[Connection]], path: str, uid: int) -> None:
    """Everything that `Net` promises about "unix://" addresses; `dial` is somebody on the same host."""
    address = f"unix://{path}"
    with pytest.raises(PeerError, match="unix"):
        await dial(address)
    async with serving(net, address, echo) as bound:
        assert bound == address
        connection = await dial(address)
        assert await exchange(connection, b"hello") == b"hello"
        await connection.stream.aclose()
        with pytest.raises(HostError, match="listens"):
            await net.listen(address)
    with pytest.raises(PeerError):
        await dial(address)
    uids: list[int | None] = []

    async def note(connection: Connection) -> None:
        uids.append(connection.peer_uid)
        assert connection.remote == "unix:"

    async with serving(net, address, note):
        connection = await dial(address)
        assert await connection.stream.receive_some() == b""
        await connection.stream.aclose()
    assert uids == [uid]


async def _check_plain(server: Net, client: Net, address: str) -> None:
    async with serving(server, address, echo) as bound:
        connection = await client.dial(bound)
        assert (connection.peer, connection.peer_uid) == (None, None)
        assert connection.remote.startswith("tcp://")
        assert await exchange(connection, b"x" * 300_000) == b"x" * 300_000
        await connection.stream.aclose()
        with pytest.raises(HostError, match="cannot listen on tcp://"):
            await server.listen(bound)
    with pytest.raises(PortClosed, match="cannot connect to tcp://"):
        await client.dial(bound)
    async with serving(server, bound, fail) as again:
        assert again == bound
        for _ in range(2):  # a handler that fails ends its connection alone
            connection = await client.dial(bound)
            with pytest.raises((trio.BrokenResourceError, EOFError)):
                await exchange(connection, b"x")
            await trio.aclose_forcefully(connection.stream)


async def _check_encrypted(server: Net, client: Net, address: str, identities: Identities) -> None:
    manager, worker = identities.node("m1", Role.MANAGER), identities.node("n1")
    seen: list[tuple[str, Role] | None] = []

    async def note(connection: Connection) -> None:
        seen.append((connection.peer.node_id, connection.peer.role) if connection.peer else None)
        await echo(connection)

    async with serving(server, address, note, lambda: manager) as bound:
        for credentials in (
            worker,
            Credentials(ca_certificate_pem=manager.ca_certificate_pem),
            Credentials(),
            identities.node("m2", Role.MANAGER),
        ):
            connection = await client.dial(bound, credentials)
            assert await exchange(connection, b"hello") == b"hello"
            if credentials.ca_certificate_pem:
                assert connection.peer is not None
                assert (connection.peer.node_id, connection.peer.role) == ("m1", Role.MANAGER)
            else:
                assert connection.peer is None
            await connection.stream.aclose()
    assert seen == [("n1", Role.WORKER), None, None, ("m2", Role.MANAGER)]


async def _check_refusals(server: Net, client: Net, address: str, identities: Identities) -> None:
    """Each bad certificate is refused on the side that sees it, and a renewed one counts at once."""
    foreign = Identities.of(identities.pki, identities.now_s)
    long_ago_s = identities.now_s - 100 * DAY_S
    manager, worker = identities.node("m1", Role.MANAGER), identities.node("n1")
    expired = identities.node("n2", valid_s=DAY_S, signed_at_s=long_ago_s)
    intruder = foreign.node("n1", trust=identities.authority[0])
    shown = [manager]
    n_handled = 0

    async def count(connection: Connection) -> None:
        nonlocal n_handled
        n_handled += 1
        await echo(connection)

    async def refused_by_server(bound: str, credentials: Credentials) -> None:
        with pytest.raises((PeerError, trio.BrokenResourceError), match="certificate"):
            await dial_and_exchange(client, bound, credentials)

    async with serving(server, address, count, lambda: shown[0]) as bound:
        await refused_by_server(bound, expired)
        await refused_by_server(bound, intruder)
        as_node = Credentials(
            certificate_pem=identities.authority[0],
            key_pem=identities.authority[1],
            ca_certificate_pem=identities.authority[0],
        )
        with pytest.raises((PeerError, trio.BrokenResourceError, EOFError)):
            await dial_and_exchange(client, bound, as_node)
        assert n_handled == 0
        for bad, sentence in (
            (identities.node("n9"), "not a manager"),
            (foreign.node("m1", Role.MANAGER), "CA"),
            (identities.node("m1", Role.MANAGER, valid_s=DAY_S, signed_at_s=long_ago_s), "expired"),
        ):
            shown[0] = bad
            with pytest.raises(PeerError, match=sentence):
                await client.dial(bound, worker)
        shown[0] = manager
        assert n_handled <= 1  # who poses as a manager may see a connection begin, and nothing on it
        await dial_and_exchange(client, bound, worker)


async def _check_silence(server: Net, client: Net, address: str, identities: Identities) -> None:
    """A crowd that connects and says nothing keeps nobody out."""
    manager, worker = identities.node("m1", Role.MANAGER), identities.node("n1")
    async with serving(server, address, echo, lambda: manager) as bound:
        crowd = [await client.dial(bound) for _ in range(70)]
        with trio.fail_after(5):
            await dial_and_exchange(client, bound, worker)
        for connection in crowd:
            await connection.stream.aclose()


@asynccontextmanager
async def serving(
    net: Net,
    address: str,
    handler: Callable[[Connection], Awaitable[None]],
    credentials: Callable[[], Credentials] | None = None,
) -> AsyncIterator[str]:
    """A listener with a handler, for as long as the context lasts; gives its address."""
    listener = await net.listen(address, credentials)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, handler)
        try:
            yield listener.address
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await listener.aclose()


async def echo(connection: Connection) -> None:
    """Send back what comes until the other side is done."""
    while data := await connection.stream.receive_some(65536):
        await connection.stream.send_all(data)


async def fail(connection: Connection) -> None:
    """A handler with a bug."""
    raise RuntimeError(f"bug while serving {connection.remote}")


async def dial_and_exchange(net: Net, address: str, credentials: Credentials | None = None) -> None:
    """Connect, have a few bytes echoed, hang up."""
    connection = await net.dial(address, credentials)
    try:
        assert await exchange(connection, b"hello") == b"hello"
    finally:
        await trio.aclose_forcefully(connection.stream)


async def exchange(connection: Connection, data: bytes) -> bytes:
    """Send and read as much back; EOFError when the other side ends before."""
    got = bytearray()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.stream.send_all, data)
            while len(got) < len(data):
                part = await connection.stream.receive_some(65536)
                if not part:
                    raise EOFError("the other side ended")
                got += part
    except ExceptionGroup as group:
        # Both halves may fail for one reason; the reader knows it better.
        raise group.exceptions[0] from None
    return bytes(got)
