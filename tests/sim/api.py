"""The manager's Docker API as a client on its machine calls it, through real HTTP on simulated sockets."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import h11
import trio

from beeyard.core.errors import PeerError
from beeyard.runtime.host import Connection
from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_stream import Endpoint
from tests.support.http_client import HttpClient, HttpReply

API_SOCKET = "unix:///run/beeyard/docker.sock"
VERSION = "/v1.47"
# Longer than a commit on the slowest disk, shorter than a partition.
TIMEOUT_S = 20.0


# ClosedResourceError: the machine lost power, and this client with it.
UNANSWERED = (
    PeerError,
    EOFError,
    h11.RemoteProtocolError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)


class Unanswered(Exception):
    """The manager is gone, paused or hung up: what was asked may have happened or not."""


class Refused(Exception):
    """The manager said no: nothing has happened."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__(f"{reply.status}: {reply.body.decode()}")
        self.status = reply.status


class Request:
    """One request on a connection of its own."""

    def __init__(self, dial: Callable[[], Awaitable[Connection]], method: str, path: str, content: bytes) -> None:
        self._dial = dial
        self._method = method
        self._path = path
        self._content = content
        self._stream: Endpoint | None = None
        self._dialling = True

    @property
    def is_over(self) -> bool:
        """Whether it can have no effect any more: the manager is done with the connection, or that manager is dead.

        A client that gives up is not enough: what it sent may lie in the socket of a manager that is paused.
        """
        return not self._dialling and (self._stream is None or self._stream.peer_closed)

    async def answer(self) -> Any:
        """The decoded reply, None when it has no body.

        Raises:
            Refused: by the manager, with its status.
            Unanswered: no answer within `TIMEOUT_S`.
        """
        try:
            with trio.fail_after(TIMEOUT_S):
                reply = await self._exchange()
        except UNANSWERED as error:
            raise Unanswered(f"{self._method} {self._path}: {error}") from error
        if reply.status == 503 or reply.status == 500:
            # The store may have taken it all the same: the disk failed in the middle.
            raise Unanswered(f"{self._method} {self._path}: {reply.body.decode()}")
        if reply.status >= 400:
            raise Refused(reply)
        return json.loads(reply.body) if reply.body else None

    async def _exchange(self) -> HttpReply:
        try:
            connection = await self._dial()
            assert isinstance(connection.stream, Endpoint)
            self._stream = connection.stream
        finally:
            self._dialling = False
        try:
            headers = (("content-type", "application/json"),) if self._content else ()
            return await HttpClient(self._stream).request(self._method, self._path, self._content, headers)
        finally:
            self._stream.close()


class ClusterApi:
    """Calls the API, each time on a connection of its own."""

    def __init__(self, world: SimWorld, machine: str, socket: str = API_SOCKET) -> None:
        self._dial = functools.partial(world.dial, machine, socket)

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Request:
        """A request that is made when its answer is asked for."""
        target = f"{VERSION}{path}" + (f"?{urlencode(query)}" if query else "")
        return Request(self._dial, method, target, b"" if body is None else json.dumps(body).encode())

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer to a request; see `Request.answer`."""
        return await self.request(method, path, body, **query).answer()

    async def insist(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """As `call`, again and again until there is an answer: for what may be asked twice."""
        while True:
            try:
                return await self.call(method, path, body, **query)
            except Unanswered:
                await trio.sleep(0.5)
