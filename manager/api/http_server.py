"""A small HTTP/1.1 server: ASGI applications over h11, on the streams that `host.net.listen` gives.

It reads a request's body whole before the application runs, so bounds on size and time hold whatever the application does.
A client that stalls while it sends or reads is cut after its time; nothing here is shielded, so cancelling the listener ends
every connection at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

import h11
import msgspec
import structlog
import trio

from beeyard.runtime.host import Connection, Listener

log = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

# 64 KiB: one system call for nearly every request, small against memory per connection.
RECEIVE_BYTES = 65536


@dataclasses.dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Bounds of one server. Raising a time or size costs memory and connections that a broken client can hold."""

    body_bytes_max: int = 8 << 20  # a service spec is a few KiB; Docker's largest object (a config) is 1 MiB
    header_bytes_max: int = 64 << 10  # a filter with 1,000 ids is about 40 KiB
    connections_max: int = 1024  # the process may have 20,000 open files, and agents need theirs
    idle_s: float = 75.0  # between requests of one connection; above the 60 s after which Go's client closes
    header_s: float = 10.0  # from a request's first byte to the end of its header
    body_s: float = 60.0  # from there to the end of its body
    send_s: float = 60.0  # for one piece of the reply to be taken
    drain_s: float = 2.0  # how long a refused request is read on, so that the client sees the reply and not a reset
    drain_bytes_max: int = 32 << 20


class HttpServer:
    """Serves one application: at a listener, or each connection that `handle` is given."""

    def __init__(self, app: AsgiApp, limits: HttpLimits | None = None) -> None:
        self._app = app
        self._limits = limits or HttpLimits()
        self.n_connections = 0

    async def serve(self, listener: Listener, task_status: trio.TaskStatus[str]) -> None:
        """Serve whoever connects, until cancelled; started, with the address, at once. The listener is closed then."""
        try:
            task_status.started(listener.address)
            await listener.serve(self.handle)
        finally:
            with trio.move_on_after(1.0, shield=True):
                await listener.aclose()

    async def handle(self, connection: Connection) -> None:
        """Serve one connection until it ends. A vanished client is no error."""
        session = _HttpSession(self._app, connection, self._limits)
        try:
            if self.n_connections >= self._limits.connections_max:
                await session.refuse(_Refused(503, "too many connections"))
                return
            self.n_connections += 1
            try:
                await session.run()
            finally:
                self.n_connections -= 1
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            log.debug("connection ended", remote=connection.remote, reason=repr(error))


class _Refused(Exception):
    """The request is not served: answer with this and hang up."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class _HttpSession:
    """One connection: requests one after the other."""

    def __init__(self, app: AsgiApp, connection: Connection, limits: HttpLimits) -> None:
        self._app = app
        self._connection = connection
        self._stream = connection.stream
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes_max)

    async def run(self) -> None:
        try:
            while True:
                request = await self._next_request()
                if request is None:
                    return
                body = await self._read_body(request)
                await self._answer(request, body)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self.refuse(_Refused(error.error_status_hint, f"not a valid HTTP request: {error}"))
        except _Refused as refused:
            await self.refuse(refused)

    async def refuse(self, refused: _Refused) -> None:
        """Answer in Docker's form, if nothing was said yet, and read on for a moment."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = msgspec.json.encode({"message": refused.reason}) + b"\n"
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        out = self._http.send(h11.Response(status_code=refused.status, headers=headers))
        out += self._http.send(h11.Data(data=body))
        out += self._http.send(h11.EndOfMessage())
        n_bytes = 0
        with trio.move_on_after(self._limits.drain_s):
            await self._stream.send_all(out)
            while n_bytes < self._limits.drain_bytes_max and (data := await self._stream.receive_some(RECEIVE_BYTES)):
                n_bytes += len(data)

    async def _next_request(self) -> h11.Request | None:
        """The next request's header; None when the client has left or said nothing for long."""
        started = bool(self._http.trailing_data[0])
        with trio.move_on_after(self._limits.header_s if started else self._limits.idle_s) as patience:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event if isinstance(event, h11.Request) else None
                data = await self._stream.receive_some(RECEIVE_BYTES)
                if data and not started:
                    started = True
                    patience.deadline = trio.current_time() + self._limits.header_s
                self._http.receive_data(bytes(data))
        if started:
            raise _Refused(408, "the request's header did not come in time")
        return None

    async def _read_body(self, request: h11.Request) -> bytes:
        limit = self._limits.body_bytes_max
        too_large = _Refused(413, f"the request's body is larger than {limit} bytes")
        declared = next((value for name, value in request.headers if name == b"content-length"), b"0")
        if int(declared) > limit:
            raise too_large
        event = self._http.next_event()
        if isinstance(event, h11.EndOfMessage):
            return b""  # nearly every request; saves it a timer
        pieces: list[bytes] = []
        n_bytes = 0
        with trio.move_on_after(self._limits.body_s):
            while True:
                if event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        await self._stream.send_all(
                            self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                        )
                    self._http.receive_data(bytes(await self._stream.receive_some(RECEIVE_BYTES)))
                elif isinstance(event, h11.Data):
                    n_bytes += len(event.data)
                    if n_bytes > limit:
                        raise too_large
                    pieces.append(bytes(event.data))
                else:
                    return b"".join(pieces)
                event = self._http.next_event()
        raise _Refused(408, "the request's body did not come in time")

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        exchange = _Exchange(self._http, self._stream, body, self._limits.send_s, head=request.method == b"HEAD")
        await self._app(_scope(request, self._connection), exchange.receive, exchange.send)
        if not exchange.done:
            # The application has given up in the middle; only a cut tells the client so.
            raise trio.BrokenResourceError("the application left its reply unfinished")


class _Exchange:
    """The application's side of one request."""

    def __init__(
        self, http: h11.Connection, stream: trio.abc.Stream, body: bytes, send_s: float, *, head: bool
    ) -> None:
        self._http = http
        self._stream = stream
        self._body: bytes | None = body
        self._send_s = send_s
        self._head = head
        self._start: Message | None = None
        self.done = False

    async def receive(self) -> Message:
        """ASGI's receive: the whole body at once, then the news that the client has left."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not self.done:
            try:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            self._http.receive_data(bytes(data))
            if not data:
                break
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """ASGI's send. The header goes out with the first piece of the body, as one write."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        out = b""
        if self._start is not None:
            headers = list(self._start["headers"])
            out = self._http.send(h11.Response(status_code=self._start["status"], headers=headers))
            self._start = None
        if message.get("body") and not self._head:
            out += self._http.send(h11.Data(data=message["body"]))
        if not message.get("more_body"):
            out += self._http.send(h11.EndOfMessage())
            self.done = True
        with trio.fail_after(self._send_s):
            await self._stream.send_all(out)


def _scope(request: h11.Request, connection: Connection) -> Scope:
    raw_path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": "http",
        "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": None,
        "server": None,
        # Who asks: the user id is the kernel's word on a unix socket, the certificate was verified.
        "extensions": {
            "beeyard.peer": {
                "remote": connection.remote,
                "uid": connection.peer_uid,
                "certificate": connection.peer,
            }
        },
    }


__all__ = ["AsgiApp", "HttpLimits", "HttpServer", "Message", "Receive", "Scope", "Send"]
