"""One call of Docker's plugin protocol: an HTTP/1.1 POST on a connection of its own.

Source: moby v28.2.2, pkg/plugins/client.go. Headers and bodies are as captured from it: the MIME type goes into `Accept`,
there is no `Content-Type`, and that of the answer is not looked at, because plugins in use send `text/html`. A connection for
each call costs 0.1 ms on a unix socket, and spares the question whether a broken one had carried the request.
"""

from __future__ import annotations

import h11
import trio

from beeyard import __version__
from beeyard.core.errors import ClusterError

HOST = "plugin.moby.localhost"
MIME = "application/vnd.docker.plugins.v1.2+json"
# An answer is a few hundred bytes; 1 MiB is what a plugin that has gone mad may cost a call.
ANSWER_BYTES_MAX = 1 << 20
HEADER_BYTES_MAX = 64 << 10
RECEIVE_BYTES = 65536


class BadAnswer(ClusterError):
    """What came back is no answer: not HTTP, or too large. `reason` continues the plugin's name."""


async def post(stream: trio.abc.Stream, method: str, body: bytes) -> tuple[int, bytes]:
    """Send one request, such as "IpamDriver.RequestPool", and give the answer's status and body.

    Raises:
        BadAnswer: the other side did not answer as HTTP has it.
        trio.BrokenResourceError, trio.ClosedResourceError: the connection broke.
    """
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADER_BYTES_MAX)
    headers = [
        ("Host", HOST),
        ("User-Agent", f"beeyard/{__version__}"),
        ("Content-Length", str(len(body))),
        ("Accept", MIME),
    ]
    out = http.send(h11.Request(method="POST", target=f"/{method}", headers=headers))
    if body:
        out += http.send(h11.Data(data=body))
    out += http.send(h11.EndOfMessage())
    await stream.send_all(out)
    try:
        return await _answer(http, stream)
    except h11.RemoteProtocolError as error:
        if http.trailing_data[1]:
            raise trio.BrokenResourceError("it closed the connection without an answer") from None
        raise BadAnswer(f"what it answers is not HTTP: {error}") from None


async def _answer(http: h11.Connection, stream: trio.abc.Stream) -> tuple[int, bytes]:
    status = 0
    pieces: list[bytes] = []
    n_bytes = 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            n_bytes += len(event.data)
            if n_bytes > ANSWER_BYTES_MAX:
                raise BadAnswer(f"its answer is larger than {ANSWER_BYTES_MAX} bytes")
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return status, b"".join(pieces)
        elif isinstance(event, h11.ConnectionClosed):
            raise trio.BrokenResourceError("it closed the connection without an answer")


__all__ = ["ANSWER_BYTES_MAX", "HOST", "MIME", "BadAnswer", "post"]
