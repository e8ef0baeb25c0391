"""One call on the wire: what is sent, word for word, and what is made of every kind of answer."""

from __future__ import annotations

from collections.abc import Callable

import outcome
import pytest
import trio
import trio.testing

from beeyard import __version__
from beeyard.manager.ipam.http import ANSWER_BYTES_MAX, BadAnswer, post


async def call(answer: bytes, *, pieces: int = 1) -> tuple[tuple[int, bytes], bytes]:
    """The result of a call that is answered so, and what was sent."""
    ours, theirs = trio.testing.memory_stream_pair()
    sent = b""

    async def peer() -> None:
        nonlocal sent
        sent = bytes(await theirs.receive_some(65536))
        size = max(1, len(answer) // pieces)
        for begin in range(0, len(answer), size):
            await theirs.send_all(answer[begin : begin + size])
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer)
        with trio.fail_after(5):
            result = await outcome.acapture(post, ours, "IpamDriver.RequestPool", b'{"V6":false}')
        nursery.cancel_scope.cancel()
    return result.unwrap(), sent


async def test_what_is_sent_is_what_docker_sends() -> None:
    """Host, length and Accept as captured from Docker 28.2.2, and no Content-Type."""
    (status, body), sent = await call(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert (status, body) == (200, b"{}")
    assert sent == (
        b"POST /IpamDriver.RequestPool HTTP/1.1\r\nHost: plugin.moby.localhost\r\n"
        + f"User-Agent: beeyard/{__version__}\r\n".encode()
        + b"Content-Length: 12\r\nAccept: application/vnd.docker.plugins.v1.2+json\r\n\r\n"
        + b'{"V6":false}'
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
async def test_any_way_to_say_it_is_understood(answer: bytes, pieces: int) -> None:
    """Chunked, until the end of the connection, after a 100, in pieces, of whatever content type."""
    result, _ = await call(answer, pieces=pieces)
    assert result == (200, b"{}")


def broken(error: BaseException) -> bool:
    return isinstance(error, trio.BrokenResourceError)


def bad(words: str) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, BadAnswer) and words in str(error)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", broken),
        (b"HTTP/1.1 200 OK\r\nContent-", broken),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", broken),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", bad("is not HTTP")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, bad("is not HTTP")),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (ANSWER_BYTES_MAX + 1), bad("larger than 1048576 bytes")),
    ],
)
async def test_what_is_no_answer_is_told_apart(answer: bytes, expected: Callable[[BaseException], bool]) -> None:
    """A connection that ends early broke; what is not HTTP or has no end is a bad answer."""
    with pytest.raises((trio.BrokenResourceError, BadAnswer)) as caught:
        await call(answer)
    assert expected(caught.value)
