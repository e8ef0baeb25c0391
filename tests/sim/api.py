"""The manager's Docker API as a client on its machine calls it, through real HTTP on simulated sockets."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import h11
import trio

from beeyard.core.errors import PeerError
from beeyard.runtime.sim import SimWorld
from tests.support.http_client import HttpClient, HttpReply

API_SOCKET = "unix:///run/beeyard/docker.sock"
VERSION = "/v1.47"
# Longer than a commit on the slowest disk, shorter than a partition.
TIMEOUT_S = 20.0


class Unanswered(Exception):
    """The manager is gone, paused or hung up: what was asked may have happened or not."""


class Refused(Exception):
    """The manager said no: nothing has happened."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__(f"{reply.status}: {reply.body.decode()}")
        self.status = reply.status


class ClusterApi:
    """Calls the API, each time on a connection of its own."""

    def __init__(self, world: SimWorld, machine: str, socket: str = API_SOCKET) -> None:
        self._world = world
        self._machine = machine
        self._socket = socket

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The decoded reply, None when it has no body.

        Raises:
            Refused: by the manager, with its status.
            Unanswered: no answer within `TIMEOUT_S`.
        """
        try:
            with trio.fail_after(TIMEOUT_S):
                reply = await self._exchange(method, path, body, query)
        except (PeerError, EOFError, h11.RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise Unanswered(f"{method} {path}: {error}") from error
        if reply.status == 503 or reply.status == 500:
            # The store may have taken it all the same: the disk failed in the middle.
            raise Unanswered(f"{method} {path}: {reply.body.decode()}")
        if reply.status >= 400:
            raise Refused(reply)
        return json.loads(reply.body) if reply.body else None

    async def insist(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """As `call`, again and again until there is an answer: for what may be asked twice."""
        while True:
            try:
                return await self.call(method, path, body, **query)
            except Unanswered:
                await trio.sleep(0.5)

    async def _exchange(self, method: str, path: str, body: Any, query: dict[str, Any]) -> HttpReply:
        connection = await self._world.dial(self._machine, self._socket)
        try:
            target = f"{VERSION}{path}" + (f"?{urlencode(query)}" if query else "")
            content = b"" if body is None else json.dumps(body).encode()
            headers = (("content-type", "application/json"),) if content else ()
            return await HttpClient(connection.stream).request(method, target, content, headers)
        finally:
            await trio.aclose_forcefully(connection.stream)
