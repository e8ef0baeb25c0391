"""An encrypted stream after its handshake: order and completeness under back-pressure, cancellation and every kind of end."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.core.states import Role
from beeyard.runtime.pki import RealPki
from beeyard.runtime.real_tls import handshake_as_client, handshake_as_server
from beeyard.runtime.real_tls_stream import TlsStream
from tests.support.conformance import Identities

# More than both sockets' buffers hold.
LARGE = os.urandom(1 << 20) * 8


class Pair:
    """Both ends, and the sockets below them."""

    def __init__(
        self, server: TlsStream, client: TlsStream, below: tuple[trio.SocketStream, trio.SocketStream]
    ) -> None:
        self.server, self.client, self.below = server, client, below


@asynccontextmanager
async def a_pair() -> AsyncIterator[Pair]:
    """Two ends that have shaken hands."""
    identities = Identities.of(RealPki(), time.time())
    one, two = (trio.SocketStream(end) for end in trio.socket.socketpair())
    ends: dict[str, TlsStream] = {}

    async def serve() -> None:
        ends["server"] = await handshake_as_server(one, identities.node("m1", Role.MANAGER), "client")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        ends["client"] = await handshake_as_client(two, identities.node("n1"), "server")
    try:
        yield Pair(ends["server"], ends["client"], (one, two))
    finally:
        await trio.aclose_forcefully(one)
        await trio.aclose_forcefully(two)


async def receive(stream: TlsStream, n_bytes: int) -> bytes:
    """Exactly so much."""
    data = bytearray()
    while len(data) < n_bytes:
        some = await stream.receive_some(n_bytes - len(data))
        assert some, "ended early"
        data += some
    return bytes(data)


async def test_both_ends_send_more_than_the_sockets_hold() -> None:
    """Large messages in both directions at once arrive whole, for neither end's writer keeps its reader from reading."""
    async with a_pair() as pair, trio.open_nursery() as nursery:
        nursery.start_soon(pair.server.send_all, LARGE)
        nursery.start_soon(pair.client.send_all, LARGE[::-1])
        assert await receive(pair.client, len(LARGE)) == LARGE
        assert await receive(pair.server, len(LARGE)) == LARGE[::-1]


async def test_cancelled_writer_leaves_a_stream_that_works() -> None:
    """What was handed to TLS before a cancellation arrives first, then what is sent next."""
    async with a_pair() as pair:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.server.send_all, LARGE)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.server.send_all, b"next")
            assert await receive(pair.client, len(LARGE) + 4) == LARGE + b"next"


async def test_what_does_not_go_at_once_goes_with_the_flush() -> None:
    """All is taken at once and in order, however much of it the socket takes; a cancelled flush loses nothing."""
    async with a_pair() as pair:
        assert pair.server.send_nowait(b"first")
        assert not pair.server.send_nowait(LARGE)
        assert not pair.server.send_nowait(b"last")
        with trio.move_on_after(0):
            await pair.server.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.server.flush)
            assert await receive(pair.client, len(LARGE) + 9) == b"first" + LARGE + b"last"
        assert pair.server.send_nowait(b"")


async def test_an_end_is_an_end_however_often_it_is_asked_for() -> None:
    """Also while the other side's connection stays open after its goodbye."""
    async with a_pair() as pair:
        with contextlib.suppress(ssl.SSLError):
            pair.server.tls.unwrap()
        await pair.server.flush()
        with trio.fail_after(5):
            assert [await pair.client.receive_some() for _ in range(3)] == [b"", b"", b""]


async def test_cancelled_reader_loses_nothing() -> None:
    """A reader that gives up while it waits misses no byte."""
    async with a_pair() as pair:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.client.receive_some)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await pair.server.send_all(b"here")
        assert await receive(pair.client, 4) == b"here"


async def test_end_with_and_without_goodbye() -> None:
    """Both are an end; after it the rest of what was sent before is still there."""
    for politely in (True, False):
        async with a_pair() as pair:
            await pair.server.send_all(b"last words")
            await (pair.server.aclose() if politely else pair.below[0].aclose())
            assert await receive(pair.client, 10) == b"last words"
            assert await pair.client.receive_some() == b""


async def test_closed_stream_says_so() -> None:
    """Also to a reader that waits, and closing twice does no harm."""
    async with a_pair() as pair:
        with pytest.RaisesGroup(trio.ClosedResourceError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pair.client.receive_some)
                await trio.testing.wait_all_tasks_blocked()
                await pair.client.aclose()
        await pair.client.aclose()
        for call in (pair.client.receive_some, pair.client.wait_send_all_might_not_block):
            with pytest.raises(trio.ClosedResourceError):
                await call()
        with pytest.raises(trio.ClosedResourceError):
            await pair.client.send_all(b"x")


async def test_writer_hears_that_nobody_is_there() -> None:
    """Sending to an end that is gone is an error sooner or later."""
    async with a_pair() as pair:
        await pair.below[1].aclose()
        with pytest.raises(trio.BrokenResourceError, match="client"):
            await pair.server.send_all(LARGE)


async def test_garbage_is_an_error_with_a_reason() -> None:
    """Bytes that are not TLS break the stream."""
    async with a_pair() as pair:
        await pair.below[0].send_all(b"this is not a TLS record at all, but long enough for one")
        with pytest.raises(trio.BrokenResourceError, match="server"):
            await pair.client.receive_some()
