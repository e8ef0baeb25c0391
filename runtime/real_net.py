"""Streams over TCP, TLS 1.3 and unix sockets of this machine."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import ssl
import stat
import struct
from collections.abc import Awaitable, Callable

import structlog
import trio

from beeyard.core.errors import HostError, NoSuchSocket, PeerError, PortClosed, RemoteProtocolError
from beeyard.runtime import real_datagrams
from beeyard.runtime.address import TcpAddress, UnixAddress, parse_address
from beeyard.runtime.host import Connection, Credentials, Multicast
from beeyard.runtime.real_greeting import PatientStream, Strangers, Turns
from beeyard.runtime.real_tls import (
    failure_reason,
    handshake_as_client,
    handshake_as_server,
    peer_of,
    require_manager,
)

log = structlog.get_logger(__name__)

# A handshake is three packets; whoever needs longer is gone or means to keep us waiting.
HANDSHAKE_TIMEOUT_S = 10.0
# Connections wait here while we compute.
BACKLOG = 4096
# A peer whose machine lost power says nothing: the kernel asks after 30 s of silence and gives up within a minute.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
# How long a finished connection is drained so that our last words are not lost to a reset, and how much of it.
LINGER_S = 1.0
LINGER_BYTES = 1 << 20


_KINDS: dict[int, type[PeerError]] = {errno.ENOENT: NoSuchSocket, errno.ECONNREFUSED: PortClosed}


class RealNet:
    """`Net` on this machine's own stack."""

    async def listen(
        self,
        address: str,
        credentials: Callable[[], Credentials] | None = None,
        *,
        socket_mode: int = 0o660,
        socket_group: str = "",
    ) -> RealListener:
        """See `Net.listen`."""
        where = parse_address(address)
        try:
            if isinstance(where, UnixAddress):
                bound = await trio.to_thread.run_sync(_bind_unix, where.path, socket_mode, socket_group)
                listening = trio.socket.from_stdlib_socket(bound)
                return RealListener(trio.SocketListener(listening), address, credentials, unix_path=where.path)
            listener = trio.SocketListener(await _bind_tcp(where))
        except OSError as error:
            raise HostError(f"cannot listen on {address}: {_words(error)}") from error
        host, port = listener.socket.getsockname()[:2]
        return RealListener(listener, str(TcpAddress(host, port)), credentials)

    async def dial(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = 10.0
    ) -> Connection:
        """See `Net.dial`. Cancellation: all or nothing."""
        where = parse_address(address)
        try:
            with trio.fail_after(timeout_s):
                if isinstance(where, UnixAddress):
                    return Connection(stream=await trio.open_unix_socket(where.path), remote=address)
                return await _dial_tcp(where, credentials)
        except trio.TooSlowError:
            raise PeerError(f"cannot connect to {address}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            cause = _cause(error)
            kind = _KINDS.get(cause.errno or 0, PeerError)
            raise kind(f"cannot connect to {address}: {_words(error)}") from error
        except trio.BrokenResourceError as error:
            raise PeerError(f"cannot connect to {address}: {failure_reason(error)}") from error
        except PeerError as error:
            raise PeerError(f"cannot connect to {address}: {error}") from error

    async def datagrams(
        self, address: str, *, multicast: Multicast | None = None, receive_buffer_bytes: int = 0
    ) -> real_datagrams.RealDatagrams:
        """See `Net.datagrams`."""
        return await real_datagrams.bind_datagrams(address, multicast, receive_buffer_bytes)

    async def resolve(self, host: str) -> list[str]:
        """See `Net.resolve`."""
        return await real_datagrams.resolve(host)

    async def source_to(self, host: str) -> str:
        """See `Net.source_to`."""
        await trio.lowlevel.checkpoint()
        return real_datagrams.source_to(host)


class RealListener:
    """`Listener` of RealNet."""

    def __init__(
        self,
        listener: trio.SocketListener,
        address: str,
        credentials: Callable[[], Credentials] | None,
        *,
        unix_path: str = "",
    ) -> None:
        self._listener = listener
        self._address = address
        self._credentials = credentials
        self._unix_path = unix_path
        self._inode = os.stat(unix_path).st_ino if unix_path else 0
        self._strangers = Strangers()
        self._turns = Turns()

    @property
    def address(self) -> str:
        """See `Listener.address`."""
        return self._address

    async def serve(self, handler: Callable[[Connection], Awaitable[None]]) -> None:
        """See `Listener.serve`."""

        async def accepted(stream: trio.SocketStream) -> None:
            await self._accepted(stream, handler)

        await trio.serve_listeners(accepted, [self._listener])

    async def aclose(self) -> None:
        """Stop listening; a unix socket's file goes with it. Idempotent: yes."""
        # trio closes the socket itself when serving is cancelled; the file is ours to remove either way, once.
        path, self._unix_path = self._unix_path, ""
        if path:
            # Only our own file: somebody may have put another one there meanwhile.
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == self._inode:
                    os.unlink(path)
        await self._listener.aclose()

    async def _accepted(self, stream: trio.SocketStream, handler: Callable[[Connection], Awaitable[None]]) -> None:
        """One connection from its first byte to its last; never raises what concerns it alone."""
        try:
            connection = await self._greet(stream)
            if connection is not None:
                await handler(connection)
                await _linger(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as group:
            log.debug("a connection ended", remote=_remote_name(stream), reason=str(group.exceptions[0]))
        except* Exception:
            log.exception("a connection ended by an error of ours", remote=_remote_name(stream))
        finally:
            await trio.aclose_forcefully(stream)

    async def _greet(self, stream: trio.SocketStream) -> Connection | None:
        """The connection once its handshake is done, or None when it was refused, with the reason logged."""
        if self._unix_path:
            return Connection(stream=stream, remote="unix:", peer_uid=_peer_uid(stream))
        remote = _remote_name(stream)
        _keep_alive(stream)
        if self._credentials is None:
            return Connection(stream=stream, remote=remote)
        address = remote.removeprefix("tcp://").rpartition(":")[0].strip("[]")
        if reason := self._strangers.admit(address):
            _log_refusal(remote, reason)
            return None
        try:
            patient = PatientStream(stream, self._turns, HANDSHAKE_TIMEOUT_S)
            encrypted = await handshake_as_server(stream, self._credentials(), remote, patient)
            return Connection(stream=encrypted, remote=remote, peer=peer_of(encrypted))
        except trio.TooSlowError:
            _log_refusal(remote, f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        except (trio.BrokenResourceError, RemoteProtocolError) as error:
            _log_refusal(remote, failure_reason(error))
            await _linger(stream)
        finally:
            self._strangers.leave(address)
        return None


def _log_refusal(remote: str, reason: str) -> None:
    log.warning("refused a connection", remote=remote, reason=reason)


async def _dial_tcp(where: TcpAddress, credentials: Credentials | None) -> Connection:
    stream = await trio.open_tcp_stream(where.host, where.port)
    try:
        remote = _remote_name(stream)
        _keep_alive(stream)
        if credentials is None:
            return Connection(stream=stream, remote=remote)
        encrypted = await handshake_as_client(stream, credentials, remote)
        peer = peer_of(encrypted)
        require_manager(peer, credentials)
        return Connection(stream=encrypted, remote=remote, peer=peer)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _linger(stream: trio.SocketStream) -> None:
    """End our side and read what is still coming, for a moment.

    Closing with unread bytes resets the connection, and a reset can overtake what we said last, such as why we refuse.
    """
    n_bytes = 0
    with trio.move_on_after(LINGER_S), contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_eof()
        while n_bytes < LINGER_BYTES and (data := await stream.receive_some(65536)):
            n_bytes += len(data)


async def _bind_tcp(where: TcpAddress) -> trio.socket.SocketType:
    found = await trio.socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, name = found[0]
    bound = trio.socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        await bound.bind(name)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_unix(path: str, mode: int, group: str) -> socket.socket:
    """Bind and guard a socket file. Nobody can connect before `listen`, so it is never open to more than `mode` says."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    _remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(path)
        os.chmod(path, mode)
        if group:
            with contextlib.suppress(KeyError):
                os.chown(path, -1, grp.getgrnam(group).gr_gid)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def _remove_stale_socket(path: str) -> None:
    """Remove a socket file that nobody listens on; OSError when somebody does or when it is no socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "there is a file that is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _keep_alive(stream: trio.SocketStream) -> None:
    """Let a connection to a machine that is gone end by itself, also while we only listen."""
    with contextlib.suppress(OSError):  # it may have ended already, which the next call tells
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            stream.setsockopt(socket.IPPROTO_TCP, option, value)


def _peer_uid(stream: trio.SocketStream) -> int:
    """User id of the process at the other end of a unix socket, by the kernel."""
    packed = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", packed)[1])


def _remote_name(stream: trio.SocketStream) -> str:
    try:
        name = stream.socket.getpeername()
    except OSError:
        return "a peer that is gone"
    return str(TcpAddress(name[0], name[1])) if isinstance(name, tuple) else "unix:"


def _cause(error: OSError) -> OSError:
    """What went wrong first: trio gathers one error per address it tried below a plain OSError."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup) and cause.exceptions:
        cause = cause.exceptions[0]
    return cause if error.strerror is None and isinstance(cause, OSError) else error


def _words(error: OSError) -> str:
    """The system's words without its numbers."""
    if isinstance(error, ssl.SSLError):
        return failure_reason(error)
    error = _cause(error)
    return (error.strerror or str(error)).lower()


__all__ = ["RealListener", "RealNet"]
