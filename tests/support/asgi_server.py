"""An ASGI application as a server that is played, for clients in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import unquote

import trio

from beeyard.manager.api.http_server import AsgiApp, Message
from beeyard.runtime.host_lists import HttpAnswer


class AsgiServer:
    """See `fake_lists.HttpServerPlayed`."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    def tick(self) -> None:
        """Its clock is the application's own."""

    def lines(self, method: str, target: str, body: bytes) -> AsyncGenerator[bytes, None]:
        raise AssertionError("nobody reads this one by lines")

    async def answer(self, method: str, target: str, body: bytes) -> HttpAnswer:
        path, _, query = target.partition("?")
        said: dict[str, Any] = {"body": b""}

        async def receive() -> Message:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            await trio.lowlevel.checkpoint()
            said["body"] += message.get("body", b"")
            said.update({name: value for name, value in message.items() if name in ("status", "headers")})

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "extensions": {"beeyard.peer": {"remote": "memory", "uid": None, "certificate": None}},
        }
        await self._app(scope, receive, send)
        return HttpAnswer(said["status"], said["body"], {n.decode(): v.decode() for n, v in said["headers"]})
