"""`Net` of one life on a simulated machine."""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable

import structlog
import trio

from beeyard.core.errors import HostError, NoSuchSocket, PeerError, PortClosed
from beeyard.runtime.address import TcpAddress, UnixAddress, parse_address, parse_datagram_address
from beeyard.runtime.host import Connection, Credentials, Multicast
from beeyard.runtime.sim_datagrams import SimDatagrams, bind
from beeyard.runtime.sim_life import Life
from beeyard.runtime.sim_network import NetMachine, Network, Pair
from beeyard.runtime.sim_stream import Endpoint
from beeyard.runtime.sim_tls import HandshakeRefused, greet_client, greet_server

log = structlog.get_logger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Called with whoever's handler failed and how, so that a bug is not lost in a log.
ErrorSink = Callable[[str, BaseException], None]


class SimNet:
    """`Net` of one life; `life` None: a client on the machine that is not the daemon."""

    def __init__(
        self,
        network: Network,
        machine: NetMachine,
        life: Life | None,
        wall_now_s: Callable[[], float],
        *,
        uid: int = 0,
        errors: ErrorSink = lambda name, error: None,
    ) -> None:
        self._network = network
        self._machine = machine
        self._life = life
        self._wall_now_s = wall_now_s
        self._uid = uid
        self._errors = errors

    async def listen(
        self,
        address: str,
        credentials: Callable[[], Credentials] | None = None,
        *,
        socket_mode: int = 0o660,
        socket_group: str = "",
    ) -> SimListener:
        """See `Net.listen`. Modes and groups are not modelled."""
        assert self._life is not None
        if not await self._life.gate():
            raise HostError(f"cannot listen on {address}: this machine has crashed")
        where = parse_address(address)
        if isinstance(where, UnixAddress):
            if where.path in self._machine.unix_listeners:
                raise HostError(f"cannot listen on {address}: another process listens there")
            listener = SimListener(self._life, address, credentials, self._wall_now_s, self._errors)
            listener.forget = lambda: self._forget(self._machine.unix_listeners, where.path, listener)
            self._machine.unix_listeners[where.path] = listener
            return listener
        if not self._is_mine(where.host):
            raise HostError(f"cannot listen on {address}: cannot assign requested address")
        port = where.port or self._machine.free_port()
        if port in self._machine.tcp_listeners:
            raise HostError(f"cannot listen on {address}: address already in use")
        bound = str(TcpAddress(where.host, port))
        listener = SimListener(self._life, bound, credentials, self._wall_now_s, self._errors)
        listener.forget = lambda: self._forget(self._machine.tcp_listeners, port, listener)
        self._machine.tcp_listeners[port] = listener
        return listener

    async def dial(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = 10.0
    ) -> Connection:
        """See `Net.dial`."""
        await self._enter(address)
        where = parse_address(address)
        try:
            with trio.fail_after(timeout_s):
                if isinstance(where, UnixAddress):
                    connection = self._dial_unix(where.path, address)
                else:
                    connection = await self._dial_tcp(where, credentials)
        except trio.TooSlowError:
            raise PeerError(f"cannot connect to {address}: no answer within {timeout_s:g} s") from None
        except (PeerError, trio.BrokenResourceError) as error:
            kind = type(error) if isinstance(error, NoSuchSocket | PortClosed) else PeerError
            raise kind(f"cannot connect to {address}: {error}") from error
        try:
            await self._enter(address)
        except BaseException:
            await trio.aclose_forcefully(connection.stream)
            raise
        return connection

    async def datagrams(
        self, address: str, *, multicast: Multicast | None = None, receive_buffer_bytes: int = 0
    ) -> SimDatagrams:
        """See `Net.datagrams`. Interfaces are not modelled: a machine has one."""
        assert self._life is not None
        if not await self._life.gate():
            raise HostError(f"cannot bind {address}: this machine has crashed")
        where = parse_datagram_address(address)
        if not self._is_mine(where.host):
            raise HostError(f"cannot bind {address}: cannot assign requested address")
        return bind(self._network, self._machine, self._life, (where.host, where.port), multicast, receive_buffer_bytes)

    async def resolve(self, host: str) -> list[str]:
        """See `Net.resolve`: machines know each other by name."""
        await self._enter(host)
        if host in LOOPBACK:
            return ["127.0.0.1"]
        found = self._network.find(host)
        if found is None and not (":" in host or host.replace(".", "").isdigit()):
            raise PeerError(f"cannot find the address of {host!r}: name or service not known")
        return [found.ip if found is not None else host]

    async def source_to(self, host: str) -> str:
        """See `Net.source_to`."""
        await self._enter(host)
        return "127.0.0.1" if host in LOOPBACK else self._machine.ip

    def _is_mine(self, host: str) -> bool:
        return host in (*ANY_ADDRESS, *LOOPBACK, self._machine.ip, self._machine.name)

    def _dial_unix(self, path: str, address: str) -> Connection:
        listener = self._machine.unix_listeners.get(path)
        if listener is None:
            raise NoSuchSocket("no such file or directory")
        pair = self._network.connect(self._machine, self._life, self._machine, listener.life, (address, "unix:"))
        listener.accept(pair, self._uid)
        return Connection(stream=pair.client_end, remote=address)

    async def _dial_tcp(self, where: TcpAddress, credentials: Credentials | None) -> Connection:
        target = self._machine if where.host in LOOPBACK else self._network.find(where.host)
        if target is None:
            raise PeerError("name or service not known")
        await self._reach(target)
        listener = target.tcp_listeners.get(where.port)
        if listener is None:
            raise PortClosed("connection refused")
        remote = str(TcpAddress(target.ip, where.port))
        ours = str(TcpAddress(self._machine.ip, self._machine.free_port()))
        pair = self._network.connect(self._machine, self._life, target, listener.life, (remote, ours))
        self._network.trace.event(self._machine.name, f"-> {target.name} connect {where.port}")
        listener.accept(pair, None)
        end = pair.client_end
        if credentials is None:
            return Connection(stream=end, remote=remote)
        try:
            peer = await greet_server(end, credentials, self._wall_now_s())
        except BaseException:
            end.close()
            raise
        return Connection(stream=end, remote=remote, peer=peer)

    async def _reach(self, target: NetMachine) -> None:
        """The first packets there and back; repeated as TCP does when they are lost."""
        repeat_s = 1.0
        while True:
            arrives = self._network.arrival_s(self._machine, target)
            if arrives != float("inf"):
                await trio.sleep_until(arrives)
                back = self._network.arrival_s(target, self._machine)
                if back != float("inf"):
                    await trio.sleep_until(back)
                    return
            await trio.sleep(repeat_s)
            repeat_s *= 2

    async def _enter(self, address: str) -> None:
        if self._life is not None and not await self._life.gate():
            raise PeerError(f"cannot connect to {address}: this machine has crashed")

    def _forget(self, listeners: dict[str, SimListener] | dict[int, SimListener], key: object, own: object) -> None:
        if listeners.get(key) is own:  # type: ignore[call-overload]
            del listeners[key]  # type: ignore[arg-type]


class SimListener:
    """`Listener` of one life."""

    def __init__(
        self,
        life: Life,
        address: str,
        credentials: Callable[[], Credentials] | None,
        wall_now_s: Callable[[], float],
        errors: ErrorSink,
    ) -> None:
        self.life = life
        self.forget: Callable[[], None] = lambda: None
        self._address = address
        self._credentials = credentials
        self._wall_now_s = wall_now_s
        self._errors = errors
        self._waiting: collections.deque[tuple[Pair, int | None]] = collections.deque()
        self._changed = trio.Event()

    @property
    def address(self) -> str:
        """See `Listener.address`."""
        return self._address

    def accept(self, pair: Pair, uid: int | None) -> None:
        """Queue a connection that the machine's kernel has made."""
        self._waiting.append((pair, uid))
        self._changed.set()

    async def serve(self, handler: Callable[[Connection], Awaitable[None]]) -> None:
        """See `Listener.serve`."""
        async with trio.open_nursery() as nursery:
            while await self.life.gate():
                if self._waiting:
                    nursery.start_soon(self._accepted, *self._waiting.popleft(), handler)
                else:
                    self._changed = trio.Event()
                    await self._changed.wait()
            await trio.sleep_forever()

    async def aclose(self) -> None:
        """Stop listening; who waits in the queue is reset. Idempotent: yes."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`, at once."""
        self.forget()
        while self._waiting:
            pair, _ = self._waiting.popleft()
            pair.server_end.reset(pair.client_end)

    async def _accepted(self, pair: Pair, uid: int | None, handler: Callable[[Connection], Awaitable[None]]) -> None:
        end = pair.server_end
        try:
            connection = await self._greet(pair, uid)
            if connection is not None:
                await handler(connection)
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as group:
            log.debug("a connection ended", remote=end.remote, reason=str(group.exceptions[0]))
        except* Exception as group:
            log.exception("a connection ended by an error of ours", remote=end.remote)
            self._errors(self.life.name, group)
        finally:
            end.close()

    async def _greet(self, pair: Pair, uid: int | None) -> Connection | None:
        end: Endpoint = pair.server_end
        if self._credentials is None:
            return Connection(stream=end, remote=end.remote, peer_uid=uid)
        try:
            with trio.fail_after(HANDSHAKE_TIMEOUT_S):
                peer = await greet_client(end, self._credentials(), self._wall_now_s())
            return Connection(stream=end, remote=end.remote, peer=peer)
        except trio.TooSlowError:
            _log_refusal(end.remote, f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        except HandshakeRefused as refused:
            _log_refusal(end.remote, refused.seen)
            if refused.told:
                end.reset(pair.client_end, refused.told)
        except trio.BrokenResourceError as error:
            _log_refusal(end.remote, str(error))
        return None


def _log_refusal(remote: str, reason: str) -> None:
    log.warning("refused a connection", remote=remote, reason=reason)


__all__ = ["SimListener", "SimNet"]
