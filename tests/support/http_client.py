"""A plain HTTP/1.1 client for one in-memory connection."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio


class HttpReply:
    """Status, headers in lower case, and body of one reply."""

    def __init__(self, response: h11.Response, body: bytes) -> None:
        self.status = response.status_code
        self.headers = {name.decode(): value.decode() for name, value in response.headers}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """The sentence of an error, which must be in Docker's form."""
        assert self.headers["content-type"] == "application/json"
        message: str = self.json["message"]
        return message


class HttpClient:
    """Sends requests over one stream, one after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def request(
        self, method: str, target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> HttpReply:
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        given = {name.lower() for name, _ in headers}
        length = (
            [] if "content-length" in given or "transfer-encoding" in given else [("content-length", str(len(body)))]
        )
        request = h11.Request(method=method, target=target, headers=[("host", "x"), *headers, *length])
        out = self._http.send(request)
        assert out is not None
        if body:
            out += self._http.send(h11.Data(data=body)) or b""
        await self.stream.send_all(out + (self._http.send(h11.EndOfMessage()) or b""))
        return await self.reply()

    async def reply(self) -> HttpReply:
        """The next reply, of a request that was perhaps sent as raw bytes."""
        response: h11.Response | None = None
        body = b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self.stream.receive_some(65536)))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert response is not None
                return HttpReply(response, body)
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("the server has closed the connection")
