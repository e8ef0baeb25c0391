"""TCP, TLS 1.3 and unix sockets of this machine."""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
import time
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from beeyard.core.errors import HostError, PeerError
from beeyard.core.states import Role
from beeyard.runtime import real_greeting, real_net
from beeyard.runtime.host import Connection
from beeyard.runtime.pki import RealPki
from beeyard.runtime.real_net import RealNet
from tests.support.conformance import DAY_S, Identities, check_net, check_unix, dial_and_exchange, echo, serving

LOOPBACK = "tcp://127.0.0.1:0"


def identities() -> Identities:
    """A CA of now."""
    return Identities.of(RealPki(), time.time())


@pytest.mark.parametrize("address", [LOOPBACK, "tcp://[::1]:0", "tcp://localhost:0"])
async def test_real_net_conforms(address: str) -> None:
    """The machine's own stack keeps what `Net` promises, over both families."""
    await check_net(RealNet(), RealNet(), address, identities())


async def test_unix_socket_conforms(tmp_path: Path) -> None:
    """Unix sockets tell who is at the other end."""
    net = RealNet()
    await check_unix(net, net.dial, str(tmp_path / "api.sock"), os.getuid())


async def test_unix_socket_is_guarded_and_stale_files_are_replaced(tmp_path: Path) -> None:
    """The file has the asked mode, what a crash left is replaced, a file of another kind is not."""
    net, path = RealNet(), tmp_path / "api.sock"
    crashed = await net.listen(f"unix://{path}")
    await crashed._listener.aclose()  # as a crash: the file stays
    assert path.exists()
    listener = await net.listen(f"unix://{path}", socket_mode=0o600, socket_group="no-such-group")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await listener.aclose()
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(HostError, match="not a socket"):
        await net.listen(f"unix://{path}")
    assert path.read_text() == "precious"


async def test_unix_socket_file_goes_when_serving_is_cancelled(tmp_path: Path) -> None:
    """A daemon that ends leaves no file behind that nobody listens on."""
    path = tmp_path / "api.sock"
    listener = await RealNet().listen(f"unix://{path}")
    with trio.move_on_after(0):
        await listener.serve(echo)
    assert path.exists()
    await listener.aclose()
    assert not path.exists()


async def test_refusals_are_logged_with_their_reason() -> None:
    """The log says who was refused and why: an expired certificate, a foreign one, no TLS at all."""
    ours, foreign, net = identities(), identities(), RealNet()
    manager = ours.node("m1", Role.MANAGER)
    expired = ours.node("n1", valid_s=DAY_S, signed_at_s=ours.now_s - 10 * DAY_S)
    intruder = foreign.node("n1", trust=ours.authority[0])
    with capture_logs() as logs:
        async with serving(net, LOOPBACK, echo, lambda: manager) as address:
            for credentials, told in (
                (expired, "our certificate has expired"),
                (intruder, "our certificate is of another CA"),
            ):
                with pytest.raises(trio.BrokenResourceError, match=told):
                    await dial_and_exchange(net, address, credentials)
            plain = await net.dial(address)
            await plain.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            while await plain.stream.receive_some():
                pass
            await plain.stream.aclose()
    for reason in ("its certificate has expired", "not one of this cluster's CA", "does not speak TLS 1.3"):
        assert any(reason in entry["reason"] for entry in logs), (reason, logs)
    assert all(entry["event"] == "refused a connection" for entry in logs)
    assert all(entry["remote"].startswith("tcp://127.0.0.1:") for entry in logs)


async def test_silent_client_is_refused_after_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never greets costs its slot for a bounded time, and others get in meanwhile."""
    monkeypatch.setattr(real_net, "HANDSHAKE_TIMEOUT_S", 0.2)
    ours, net = identities(), RealNet()
    manager, worker = ours.node("m1", Role.MANAGER), ours.node("n1")
    async with serving(net, LOOPBACK, echo, lambda: manager) as address:
        silent = await net.dial(address)
        await dial_and_exchange(net, address, worker)
        with trio.fail_after(5):
            assert await silent.stream.receive_some() == b""
        await silent.stream.aclose()


@pytest.mark.parametrize("said", ["nothing", "a part of its greeting", "its greeting alone"])
async def test_clients_that_say_too_little_keep_nobody_out(said: str) -> None:
    """A crowd that begins a handshake and stops there costs sockets; who greets properly is let in at once."""
    ours, net = identities(), RealNet()
    manager, worker = ours.node("m1", Role.MANAGER), ours.node("n1")
    words = {"nothing": b"", "a part of its greeting": a_greeting()[:40], "its greeting alone": a_greeting()}[said]
    async with serving(net, LOOPBACK, echo, lambda: manager) as address, contextlib.AsyncExitStack() as crowd:
        for _ in range(150):
            stream = (await net.dial(address)).stream
            crowd.push_async_callback(trio.aclose_forcefully, stream)
            if words:
                await stream.send_all(words)
        with trio.fail_after(3):
            await dial_and_exchange(net, address, worker)


def a_greeting() -> bytes:
    """A TLS client's first words."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


async def test_strangers_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is hung up on, logged with the reason; one that was let in makes room for the next."""
    monkeypatch.setattr(real_greeting, "STRANGERS_PER_ADDRESS_MAX", 2)
    ours, net = identities(), RealNet()
    manager, worker = ours.node("m1", Role.MANAGER), ours.node("n1")
    with capture_logs() as logs:
        async with serving(net, LOOPBACK, echo, lambda: manager) as address:
            silent = await net.dial(address)
            for _ in range(3):
                await dial_and_exchange(net, address, worker)
            second, third = await net.dial(address), await net.dial(address)
            with trio.fail_after(5):
                assert await third.stream.receive_some() == b""
            for connection in (silent, second, third):
                await connection.stream.aclose()
    reasons = [entry["reason"] for entry in logs if "more than" in entry["reason"]]
    assert reasons == ["more than 2 connections of 127.0.0.1 without a TLS handshake"]


async def test_last_words_reach_a_client_that_keeps_sending() -> None:
    """A refusal is read by a client whose own bytes nobody read."""
    net = RealNet()

    async def refuse(connection: Connection) -> None:
        await connection.stream.receive_some(1)
        await connection.stream.send_all(b"refused: too long")

    async with serving(net, LOOPBACK, refuse) as address:
        connection = await net.dial(address)
        await connection.stream.send_all(b"x" * 200_000)
        assert await connection.stream.receive_some() == b"refused: too long"
        await connection.stream.aclose()


async def test_dial_gives_up_in_time_and_says_so() -> None:
    """A server that accepts and says nothing does not hold a client for ever."""
    net, ours = RealNet(), identities()

    async def ignore(connection: Connection) -> None:
        await trio.sleep_forever()

    async with serving(net, LOOPBACK, ignore) as address:
        with pytest.raises(PeerError, match=r"no answer within 0\.1 s"):
            await net.dial(address, ours.node("n1"), timeout_s=0.1)
    with pytest.raises(PeerError, match="refused"):
        await net.dial(address)
