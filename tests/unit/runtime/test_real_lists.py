"""Servers of published lists as this machine reaches them: HTTP over the loopback, and shared files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from beeyard.core.errors import DiskError, HostError, PeerError
from beeyard.core.states import Role
from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.url import parse_url
from beeyard.runtime import real_http_client
from beeyard.runtime.host import Connection, Credentials
from beeyard.runtime.host_lists import ClientTls, Unreachable, Untrusted
from beeyard.runtime.pki import RealPki
from beeyard.runtime.real_files import RealFiles
from beeyard.runtime.real_http_client import RealHttpClient
from beeyard.runtime.real_lists import RealListServers
from beeyard.runtime.real_net import RealNet


class Ports:
    """As much of a host as reading lists takes."""

    files = RealFiles()
    lists = RealListServers()

    def wall_now_s(self) -> float:
        return NOW_S


Say = Callable[[trio.abc.Stream], Awaitable[None]]
NOW_S = 1_790_000_000.0


@asynccontextmanager
async def a_server(say: Say, credentials: Callable[[], Credentials] | None = None) -> AsyncIterator[str]:
    """HOST:PORT of a server that says this once it was asked something."""

    async def handle(connection: Connection) -> None:
        await connection.stream.receive_some(65536)
        await say(connection.stream)

    listener = await RealNet().listen("tcp://127.0.0.1:0", credentials)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, handle)
        yield listener.address.removeprefix("tcp://")
        nursery.cancel_scope.cancel()
    await listener.aclose()


def says(*pieces: bytes) -> Say:
    async def say(stream: trio.abc.Stream) -> None:
        for piece in pieces:
            await stream.send_all(piece)

    return say


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_an_answer_comes_whole_with_its_status() -> None:
    """Whatever that is; names of headers are in lower case."""
    async with a_server(says(b"HTTP/1.1 404 No\r\nX-Index: 7\r\nContent-Length: 4\r\n\r\nnone")) as server:
        client = RealHttpClient()
        answer = await client.request("PUT", f"http://{server}/x", b"{}")
        assert (answer.status, answer.body, answer.headers["x-index"]) == (404, b"none", "7")
        await client.aclose()


async def test_what_is_no_answer_is_told_in_words() -> None:
    """Nobody there, silence, an end too early, no HTTP: each names the server."""
    client = RealHttpClient()
    with pytest.raises(Unreachable, match=r"cannot reach 127\.0\.0\.1:1: connection refused"):
        await client.request("GET", "http://127.0.0.1:1/")

    async def silence(stream: trio.abc.Stream) -> None:
        await trio.sleep(5.0)

    async with a_server(silence) as server:
        with pytest.raises(PeerError, match=f"{server}: no answer in time"):
            await client.request("GET", f"http://{server}/", timeout_s=0.05)
    for said, reason in (
        (b"", "server disconnected"),
        (b"SSH-2.0\r\n\r\n", "what answers there speaks no HTTP .*; is it the right port"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "peer closed connection"),
    ):
        async with a_server(says(said)) as server:
            with pytest.raises(PeerError, match=f"{server}: {reason}"):
                await client.request("GET", f"http://{server}/")
    await client.aclose()


async def test_an_answer_without_an_end_costs_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole answers, and lines."""
    monkeypatch.setattr(real_http_client, "ANSWER_BYTES_MAX", 100_000)
    monkeypatch.setattr(real_http_client, "LINE_BYTES_MAX", 100_000)

    async def babble(stream: trio.abc.Stream) -> None:
        await stream.send_all(CHUNKED)
        try:
            while True:
                await stream.send_all(chunk(b"x" * 10_000))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    client = RealHttpClient()
    async with a_server(babble) as server:
        with pytest.raises(PeerError, match="more than 100000 bytes"):
            await client.request("GET", f"http://{server}/")
        with pytest.raises(PeerError, match="a line of more than 100000 bytes"):
            async with client.lines("POST", f"http://{server}/", b"{}") as lines:
                await lines.next_line()
    await client.aclose()


async def test_lines_come_one_by_one_however_they_are_cut() -> None:
    """Empty ones are left out; the last needs no end."""
    pieces = [CHUNKED, *map(chunk, (b'{"a"', b":1}\n\n{}\n", b"  \n", b"rest")), b"0\r\n\r\n"]
    async with a_server(says(*pieces)) as server:
        client = RealHttpClient()
        async with client.lines("POST", f"http://{server}/", b"{}") as lines:
            found = [await lines.next_line() for _ in range(5)]
        assert found == [b'{"a":1}', b"{}", b"rest", None, None]
        await client.aclose()


async def test_lines_that_break_off_are_an_error() -> None:
    """So is a status other than 200; nobody who stops reading early leaves anything behind."""
    client = RealHttpClient()
    async with a_server(says(CHUNKED, chunk(b"{}\n"))) as server:
        async with client.lines("POST", f"http://{server}/", b"{}") as lines:
            assert await lines.next_line() == b"{}"
            with pytest.raises(PeerError, match=server):
                await lines.next_line()
        async with client.lines("POST", f"http://{server}/", b"{}") as lines:
            assert await lines.next_line() == b"{}"
    async with a_server(says(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")) as server:
        with pytest.raises(PeerError, match="answered 503"):
            async with client.lines("POST", f"http://{server}/", b"{}"):
                pass
    await client.aclose()


def credentials(names: tuple[str, ...]) -> tuple[bytes, Credentials]:
    """An authority, and a server of it with these names."""
    pki = RealPki()
    authority = pki.new_authority("c", NOW_S)
    csr, key = pki.new_request()
    certificate = pki.sign(
        authority, csr, node_id="m", role=Role.MANAGER, organization="c", now_s=NOW_S, valid_s=1e9, names=names
    )
    return authority[0], Credentials(certificate_pem=certificate, key_pem=key, ca_certificate_pem=authority[0])


async def test_a_server_must_be_who_it_should_be(tmp_path: Path) -> None:
    """By its authority and its name."""
    good, own = credentials(("127.0.0.1",))
    other, elsewhere = credentials(("10.0.0.1",))
    (tmp_path / "good.pem").write_bytes(good)
    (tmp_path / "other.pem").write_bytes(other)
    trusting_good = RealHttpClient(ClientTls(ca_file=str(tmp_path / "good.pem")))
    trusting_other = RealHttpClient(ClientTls(ca_file=str(tmp_path / "other.pem")))
    trusting_system = RealHttpClient()
    answer = says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with a_server(answer, lambda: own) as server:
        assert (await trusting_good.request("GET", f"https://{server}/")).status == 200
        for stranger in (trusting_other, trusting_system):
            with pytest.raises(Untrusted, match=r"its certificate is not acceptable: self.signed certificate in"):
                await stranger.request("GET", f"https://{server}/")
    async with a_server(answer, lambda: elsewhere) as server:
        with pytest.raises(PeerError, match="its certificate is not acceptable: ip address mismatch") as refused:
            await trusting_other.request("GET", f"https://{server}/")
    async with a_server(answer) as server:
        with pytest.raises(PeerError, match="does not speak TLS as it should"):
            await trusting_good.request("GET", f"https://{server}/")
    assert not isinstance(refused.value, Untrusted)
    for client in (trusting_good, trusting_other, trusting_system):
        await client.aclose()


async def test_who_gives_no_authority_is_told_which_option_and_where_it_is(tmp_path: Path) -> None:
    """A token service has a certificate of its cluster, which no system knows."""
    authority, own = credentials(("127.0.0.1",))
    wrong, _ = credentials(("127.0.0.1",))
    (tmp_path / "ca.pem").write_bytes(authority)
    (tmp_path / "wrong.pem").write_bytes(wrong)
    body = b'{"version": 1, "lists": {"m": ["10.0.0.7:1"]}}'
    answer = says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def read(name: str) -> object:
        url = parse_url(f"token://{server}/t0", {"kv.cacertfile": str(tmp_path / name)} if name else {})
        backend = open_backend(url, Ports())
        try:
            return await backend.read()
        finally:
            await backend.aclose()

    async with a_server(answer, lambda: own) as server:
        with pytest.raises(
            Untrusted, match=r"kv\.cacertfile=FILE .*; `docker swarm ca` or `beeyard discovery-token --ca"
        ):
            await read("")
        with pytest.raises(
            Untrusted, match=r"the option kv\.cacertfile names .*/wrong\.pem, which is not its authority"
        ):
            await read("wrong.pem")
        assert await read("ca.pem") == {"m": ("10.0.0.7:1",)}


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    """Missing, or something else."""
    with pytest.raises(HostError, match=r"cannot read /nowhere/ca\.pem .*no such file"):
        RealHttpClient(ClientTls(ca_file="/nowhere/ca.pem"))
    (tmp_path / "x").write_text("nonsense")
    with pytest.raises(HostError, match=f"{tmp_path}/x and what belongs to it are no certificates"):
        RealHttpClient(ClientTls(ca_file=str(tmp_path / "x")))


WRITER = """
import sys, trio
from beeyard.runtime.real_lists import RealListServers
async def main():
    for number in range(15):
        await RealListServers().change_file(sys.argv[1], lambda old: old + f"{sys.argv[2]} {number}\\n".encode())
trio.run(main)
"""


async def test_processes_that_change_one_file_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """The lock is for all of this machine; the mode of the file stays what it was."""
    path = tmp_path / "nodes"
    path.touch()
    path.chmod(0o640)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in ("a", "b") for number in range(15))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["nodes", "nodes.lock"]


async def test_a_shared_file_is_made_and_what_stays_the_same_is_not_written(tmp_path: Path) -> None:
    """Everybody may read it."""
    path, servers = tmp_path / "new" / "nodes", RealListServers()
    await servers.change_file(str(path), lambda old: b"none" if old is None else b"some")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"none", 0o644)
    before = path.stat().st_ino
    await servers.change_file(str(path), lambda old: old or b"")
    assert path.stat().st_ino == before


async def test_a_shared_file_that_cannot_be_changed_is_named(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match=f"cannot change {tmp_path}/file/nodes: "):
        await RealListServers().change_file(f"{tmp_path}/file/nodes", lambda old: b"x")
