"""HTTP as a client, by httpx2. Imported when a list is published at a server: it takes a quarter of a second to load."""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import httpx2
import trio

from beeyard.core.errors import PeerError
from beeyard.runtime.host_lists import ClientTls, HttpAnswer, Lines, Unreachable, Untrusted
from beeyard.runtime.real_client_tls import client_context

# A list of 20,000 nodes in base64 is 600 KiB; 32 MiB is what a server that has gone mad may cost.
ANSWER_BYTES_MAX = 32 << 20
LINE_BYTES_MAX = 8 << 20
# No authority for it, or another one's signature. Source: OpenSSL x509_vfy.h, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,
# CERT_SIGNATURE_FAILURE, DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_GET_ISSUER_CERT_LOCALLY and
# UNABLE_TO_VERIFY_LEAF_SIGNATURE.
_UNTRUSTED = (2, 7, 18, 19, 20, 21)


class RealHttpClient:
    """`HttpClient` over the network of this machine."""

    def __init__(self, tls: ClientTls | None = None) -> None:
        # Without the environment: a proxy for people's browsers has no place between a daemon and its servers.
        self._client = httpx2.AsyncClient(
            verify=client_context(tls or ClientTls()), trust_env=False, limits=httpx2.Limits(max_connections=None)
        )

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        """See `HttpClient.request`."""
        headers = {"content-type": "application/json"} if body is not None else {}
        with _told(url):
            timeout = httpx2.Timeout(timeout_s, pool=None)
            async with self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as response:
                body_read = await _whole(url, response)
        named = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(response.status_code, body_read, named)

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[Lines]:
        """See `HttpClient.lines`."""
        timeout = httpx2.Timeout(connect_timeout_s, read=None, pool=None)
        headers = {"content-type": "application/json"}
        with _told(url):
            async with self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    raise PeerError(f"{_server(url)} answered {response.status_code}")
                async with _pieces(response) as pieces:
                    yield _Lines(url, pieces)

    async def aclose(self) -> None:
        """See `HttpClient.aclose`."""
        await self._client.aclose()


@asynccontextmanager
async def _pieces(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body as it comes. Whoever stops early leaves generators of the library behind, unless they are cancelled."""
    pieces = response.aiter_bytes()
    try:
        yield pieces
    finally:
        with trio.CancelScope() as scope, suppress(httpx2.HTTPError, httpx2.StreamError):
            scope.cancel()
            while await anext(pieces, None) is not None:
                pass


async def _whole(url: str, response: httpx2.Response) -> bytes:
    found = bytearray()
    async with _pieces(response) as pieces:
        async for piece in pieces:
            found += piece
            if len(found) > ANSWER_BYTES_MAX:
                raise PeerError(f"{_server(url)} answers with more than {ANSWER_BYTES_MAX} bytes")
    return bytes(found)


class _Lines:
    def __init__(self, url: str, pieces: AsyncIterator[bytes]) -> None:
        self._url = url
        self._pieces = pieces
        self._rest = b""
        self._whole: deque[bytes] = deque()

    async def next_line(self) -> bytes | None:
        """See `Lines.next_line`."""
        while not self._whole:
            with _told(self._url):
                piece = await anext(self._pieces, None)
            if piece is None:
                line, self._rest = self._rest.strip(), b""
                return line or None
            *whole, self._rest = (self._rest + piece).split(b"\n")
            self._whole += [line for line in whole if line.strip()]
            if len(self._rest) > LINE_BYTES_MAX:
                raise PeerError(f"{_server(self._url)} sends a line of more than {LINE_BYTES_MAX} bytes")
        return self._whole.popleft()


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn the library's errors into ours."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        kind = Untrusted if _is_untrusted(error) else Unreachable
        raise kind(f"cannot reach {_server(url)}: {_reason(error)}") from error
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        raise PeerError(f"{_server(url)}: {_reason(error)}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what is behind it. Several addresses may have been tried, each with an error of its own: the first."""
    while error is not None:
        yield error
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__


def _is_untrusted(error: Exception) -> bool:
    return any(isinstance(c, ssl.SSLCertVerificationError) and c.verify_code in _UNTRUSTED for c in _causes(error))


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not acceptable: {cause.verify_message.lower()}"
        if isinstance(cause, ssl.SSLError):
            return f"it does not speak TLS as it should: {(cause.reason or str(cause)).lower().replace('_', ' ')}"
        if isinstance(cause, OSError) and cause.strerror:
            # trio puts a sentence of its own in place of the system's; those of the resolver have numbers below zero.
            known = cause.errno is not None and cause.errno > 0
            return (os.strerror(cause.errno or 0) if known else cause.strerror).lower()
    if isinstance(error, httpx2.RemoteProtocolError) and str(error).startswith("illegal "):
        return f"what answers there speaks no HTTP ({error}); is it the right port"
    return str(error)[:1].lower() + str(error)[1:].removesuffix(".") or type(error).__name__


def _server(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


__all__ = ["RealHttpClient"]
