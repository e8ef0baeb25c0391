"""The HTTP server on in-memory streams: bounds, bad clients, clean ends."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from beeyard.manager.api.http_server import HttpLimits, HttpServer, Receive, Scope, Send, _HttpSession, _Refused
from beeyard.runtime.host import Connection
from tests.support.http_client import HttpClient

LIMITS = HttpLimits(body_bytes_max=1000, header_bytes_max=2000, connections_max=2)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with method, path and the length of the body; /hang never answers, /half answers in part."""
    if scope["path"] == "/hang":
        await trio.sleep_forever()
    body = (await receive())["body"]
    text = f"{scope['method']} {scope['path']} {len(body)}".encode()
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] == "/half":
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        return
    if scope["path"] == "/left":
        assert (await receive())["type"] == "http.disconnect"
        raise trio.BrokenResourceError
    await send({"type": "http.response.body", "body": text})


class Served:
    """A server and a way to connect to it."""

    def __init__(self, server: HttpServer, nursery: trio.Nursery) -> None:
        self.server = server
        self._nursery = nursery

    def connect(self, *, lockstep: bool = False) -> HttpClient:
        pair = trio.testing.lockstep_stream_pair() if lockstep else trio.testing.memory_stream_pair()

        async def handle() -> None:
            await self.server.handle(Connection(stream=pair[1], remote="unix:"))
            await pair[1].aclose()

        self._nursery.start_soon(handle)
        return HttpClient(pair[0])


@asynccontextmanager
async def a_server() -> AsyncIterator[Served]:
    async with trio.open_nursery() as nursery:
        yield Served(HttpServer(echo, LIMITS), nursery)
        nursery.cancel_scope.cancel()


async def test_one_connection_serves_many_requests() -> None:
    async with a_server() as served:
        client = served.connect()
        assert (await client.request("GET", "/a%20b?x=1")).body == b"GET /a b 0"
        assert (await client.request("POST", "/c", b"x" * 1000)).body == b"POST /c 1000"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with a_server() as served:
        stream = served.connect().stream
        await stream.send_all(
            b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        heard = b""
        while data := await stream.receive_some():
            heard += data
        assert heard.index(b"GET /1 0") < heard.index(b"GET /2 0")


async def test_head_gets_no_body() -> None:
    async with a_server() as served:
        stream = served.connect().stream
        await stream.send_all(b"HEAD /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        heard = b""
        while data := await stream.receive_some():
            heard += data
        assert heard.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "headers",
    [(), (("transfer-encoding", "chunked"),), (("expect", "100-continue"),)],
    ids=["declared", "chunked", "expect"],
)
async def test_a_body_over_the_limit_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    async with a_server() as served:
        reply = await served.connect().request("POST", "/a", b"x" * 1001, headers)
        assert (reply.status, reply.message) == (413, "the request's body is larger than 1000 bytes")


async def test_expect_is_answered_before_the_body_comes() -> None:
    async with a_server() as served:
        stream = served.connect().stream
        await stream.send_all(b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        await stream.send_all(b"ab")
        assert b"POST /a 2" in await stream.receive_some()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad header: x\r\n\r\n",
    ],
)
async def test_garbage_gets_a_400_and_the_connection_ends(raw: bytes, autojump_clock: trio.testing.MockClock) -> None:
    async with a_server() as served:
        client = served.connect()
        await client.stream.send_all(raw)
        heard = b""
        while data := await client.stream.receive_some():
            heard += data
        assert heard.startswith(b"HTTP/1.1 400")
        assert b'{"message":"not a valid HTTP request' in heard


async def test_a_refusal_is_json_whatever_its_reason_quotes() -> None:
    """Reasons come from the parser and may repeat what a client sent."""
    reason = 'not "valid" \\ : \x00\n\x1b'
    ours, theirs = trio.testing.memory_stream_pair()
    session = _HttpSession(echo, Connection(stream=theirs, remote="unix:"), LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.refuse, _Refused(400, reason))
        reply = await HttpClient(ours).reply()
        await ours.aclose()
    assert (reply.status, reply.message) == (400, reason)


async def test_a_header_without_end_is_refused() -> None:
    async with a_server() as served:
        client = served.connect()
        await client.stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * 3000)
        assert (await client.reply()).status == 431


@pytest.mark.parametrize(
    ("raw", "after_s"),
    [
        (b"GET / HT", LIMITS.header_s),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc", LIMITS.body_s),
    ],
    ids=["header", "body"],
)
async def test_a_client_that_stalls_while_it_sends_is_cut(
    raw: bytes, after_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_server() as served:
        client = served.connect()
        started_s = trio.current_time()
        await client.stream.send_all(raw)
        assert (await client.reply()).status == 408
        assert trio.current_time() - started_s == pytest.approx(after_s)


async def test_an_idle_connection_is_closed_without_a_word(autojump_clock: trio.testing.MockClock) -> None:
    async with a_server() as served:
        client = served.connect()
        assert await client.stream.receive_some() == b""
        assert trio.current_time() == pytest.approx(LIMITS.idle_s)


async def test_a_client_that_does_not_read_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    """The reply cannot be delivered, and the connection is free again after a time."""
    async with a_server() as served:
        client = served.connect(lockstep=True)
        await client.stream.send_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        assert served.server.n_connections == 1
        await trio.sleep(LIMITS.send_s + 1)
        assert served.server.n_connections == 0


async def test_shutdown_does_not_wait_for_a_stalled_client() -> None:
    with trio.fail_after(1):
        async with a_server() as served:
            client = served.connect(lockstep=True)
            await client.stream.send_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
            hanging = served.connect()
            await hanging.stream.send_all(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked()
            assert served.server.n_connections == 2


async def test_connections_over_the_limit_are_told_so(autojump_clock: trio.testing.MockClock) -> None:
    async with a_server() as served:
        clients = [served.connect() for _ in range(2)]
        for client in clients:
            assert (await client.request("GET", "/a")).status == 200
        third = served.connect()
        assert (await third.request("GET", "/a")).status == 503
        await clients[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (await served.connect().request("GET", "/a")).status == 200


async def test_an_unfinished_reply_is_cut() -> None:
    """The client must not take half a reply for a whole one."""
    async with a_server() as served:
        stream = served.connect().stream
        await stream.send_all(b"GET /half HTTP/1.1\r\nhost: x\r\n\r\n")
        heard = b""
        while data := await stream.receive_some():
            heard += data
        assert heard.endswith(b"content-length: 11\r\n\r\nhalf")


async def test_an_application_hears_that_the_client_left() -> None:
    async with a_server() as served:
        client = served.connect()
        await client.stream.send_all(b"GET /left HTTP/1.1\r\nhost: x\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        assert served.server.n_connections == 1
        with contextlib.suppress(trio.BrokenResourceError):
            await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert served.server.n_connections == 0


async def test_no_bytes_harm_the_server(autojump_clock: trio.testing.MockClock) -> None:
    """Cut, changed and repeated requests: each connection ends or is answered, and the next client is served."""
    rng = random.Random(7)
    whole = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nhost: x\r\n\r\n"
    async with a_server() as served:
        for _ in range(100):
            raw = bytearray(whole)
            for _ in range(rng.randrange(1, 6)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            client = served.connect()
            await client.stream.send_all(bytes(raw[: rng.randrange(1, len(raw) + 1)]))
            with trio.move_on_after(300):
                while await client.stream.receive_some():
                    pass
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert served.server.n_connections == 0
        assert (await served.connect().request("GET", "/a")).status == 200
