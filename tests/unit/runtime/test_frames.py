"""Messages over a byte stream."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_one_way_pair, memory_stream_pair

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.core.wire import (
    CaReply,
    FromManager,
    Refused,
    from_manager_decoder,
)
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Connection, Host
from beeyard.runtime.sim import SimWorld


def a_pair() -> tuple[FrameStream[FromManager], trio.abc.Stream]:
    """A receiver of what a manager says, up to 1,000 bytes a message, and its peer's stream."""
    ours, theirs = memory_stream_pair()
    return FrameStream(ours, from_manager_decoder, 1000), theirs


async def read_all(frames: FrameStream[FromManager]) -> list[FromManager]:
    """Every message up to the end."""
    messages = []
    while (message := await frames.receive()) is not None:
        messages.append(message)
    return messages


def framed(body: bytes) -> bytes:
    """A frame by hand."""
    return len(body).to_bytes(4, "big") + body


async def test_messages_arrive_whole_and_in_order_however_the_bytes_are_cut() -> None:
    """One write carries many; a reader may get them a byte at a time."""
    sent = [Refused(reason="no"), CaReply(ca_certificate_pem=b"x" * 300), Refused(reason="", retry=True)]
    one, other = memory_stream_pair()
    await FrameStream(one, from_manager_decoder).send(sent)
    data = await other.receive_some()
    for n_bytes in (1, 3, 7, len(data)):
        frames, theirs = a_pair()
        for at in range(0, len(data), n_bytes):
            await theirs.send_all(data[at : at + n_bytes])
        await theirs.aclose()
        assert [await frames.receive() for _ in sent] == sent
        assert await frames.receive() is None
        assert await frames.receive() is None


async def test_nothing_to_send_sends_nothing() -> None:
    """An empty batch makes no write."""
    frames, theirs = a_pair()
    await frames.send([])
    with trio.move_on_after(0) as scope:
        await theirs.receive_some()
    assert scope.cancelled_caught


async def test_a_stream_that_may_have_to_wait_is_written_to_by_the_flush() -> None:
    """Nothing goes before, nothing is lost, and what was taken keeps its order."""
    one, other = memory_stream_pair()
    frames = FrameStream(one, from_manager_decoder)
    assert frames.send_nowait([])
    assert not frames.send_nowait([Refused(reason="a")])
    assert not frames.send_nowait([Refused(reason="b"), Refused(reason="c")])
    with trio.move_on_after(0) as scope:
        await other.receive_some()
    assert scope.cancelled_caught
    await frames.flush()
    await one.send_eof()
    heard = await read_all(FrameStream(other, from_manager_decoder))
    assert [message.reason for message in heard if isinstance(message, Refused)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (framed(b"garbage"), "not a message of this protocol"),
        (framed(b""), "not a message of this protocol"),
        (framed(msgspec.msgpack.encode(["no_such_message/1"])), "not a message of this protocol"),
        (framed(msgspec.msgpack.encode(["refused/1"])), "not a message of this protocol"),
        (framed(msgspec.msgpack.encode(["refused/1", 7])), "not a message of this protocol"),
        (framed(msgspec.msgpack.encode(["refused/1", "no"])) + b"\0", "middle of a message"),
        (b"\0\0\0", "middle of a message"),
        (framed(b"x" * 10)[:-1], "middle of a message"),
        ((1001).to_bytes(4, "big"), "1001 bytes is over the limit of 1000"),
        (b"GET / HTTP/1.1\r\n\r\n", "over the limit of 1000"),
        (b"\x16\x03\x01\x02\x00", "over the limit of 1000"),
    ],
)
async def test_what_is_no_message_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    """Garbage, unknown tags, wrong fields, oversized and truncated frames: an error, before any of it is kept."""
    frames, theirs = a_pair()
    await theirs.send_all(data)
    await theirs.aclose()
    with pytest.raises(RemoteProtocolError, match=sentence):
        await read_all(frames)


async def test_what_is_nested_too_deeply_is_no_message_even_where_it_is_skipped() -> None:
    head = b"\x96" + msgspec.msgpack.encode("refused/1") + b"\xa0\xc2\xc2\x00"  # one field more than we know
    near, far = memory_stream_pair()
    await near.send_all(framed(head + b"\x91" * 5000 + b"\xc0"))
    with pytest.raises(RemoteProtocolError, match="not a message of this protocol: maximum recursion depth exceeded"):
        await FrameStream(far, from_manager_decoder).receive()


async def test_oversized_frame_is_refused_by_its_length_alone() -> None:
    """The reader does not wait for, nor store, what it will not take."""
    frames, theirs = a_pair()
    await theirs.send_all((1 << 31).to_bytes(4, "big"))
    with trio.fail_after(1), pytest.raises(RemoteProtocolError, match="2147483648"):
        await frames.receive()


async def test_message_that_the_other_side_would_refuse_is_not_sent() -> None:
    """Our own mistake is found here, and nothing of the batch goes out."""
    frames, theirs = a_pair()
    with pytest.raises(LocalProtocolError, match="CaReply"):
        await frames.send([Refused(reason="fits"), CaReply(ca_certificate_pem=b"x" * 2000)])
    with trio.move_on_after(0) as scope:
        await theirs.receive_some()
    assert scope.cancelled_caught


async def test_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    """A reader that looks away in the middle of a message gets it the next time."""
    sent = Refused(reason="x" * 100)
    data = framed(msgspec.msgpack.encode(sent))
    for at in range(len(data)):
        frames, theirs = a_pair()
        await theirs.send_all(data[:at])
        with trio.move_on_after(1) as scope:
            await frames.receive()
        assert scope.cancelled_caught
        await theirs.send_all(data[at:])
        assert await frames.receive() == sent


async def test_one_task_may_send_while_another_receives(autojump_clock: MockClock) -> None:
    """Both directions at once, over a simulated network, with more than fits in its buffers."""
    texts = [f"{number} {'x' * 5000}" for number in range(200)]

    async def daemon(host: Host) -> None:
        listener = await host.net.listen("tcp://0.0.0.0:1")
        await listener.serve(both_ways)

    async def both_ways(connection: Connection) -> None:
        frames = FrameStream(connection.stream, from_manager_decoder)
        async with trio.open_nursery() as nursery:
            for_all = [Refused(reason=text) for text in texts]
            nursery.start_soon(frames.send, for_all)
            assert [await frames.receive() for _ in texts] == for_all

    async with SimWorld(1) as world:
        world.start("m1", daemon)
        await trio.sleep(0.1)
        await both_ways(await world.host("a1").net.dial("tcp://m1:1"))
    assert world.handler_errors == []


async def test_decoded_messages_do_not_hold_on_to_the_buffer() -> None:
    """A message with raw parts stays valid while later ones arrive."""

    class Holder(msgspec.Struct, array_like=True):
        content: msgspec.Raw

    send, receive = memory_stream_one_way_pair()
    unused, _ = memory_stream_one_way_pair()
    frames = FrameStream(trio.StapledStream(unused, receive), msgspec.msgpack.Decoder(Holder))
    for text in ("first", "second"):
        await send.send_all(framed(msgspec.msgpack.encode([text])))
    first, second = await frames.receive(), await frames.receive()
    assert first is not None
    assert second is not None
    assert [msgspec.msgpack.decode(part.content) for part in (first, second)] == ["first", "second"]


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    """Any bytes give messages, an end or RemoteProtocolError with a sentence; never another error."""

    async def main() -> None:
        frames, theirs = a_pair()
        await theirs.send_all(data)
        await theirs.aclose()
        with contextlib.suppress(RemoteProtocolError):
            await read_all(frames)

    trio.run(main)
