"""HTTP as a client, by httpx2. Imported when a list is published at a server: it takes a quarter of a second to load."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2

from beeyard.core.errors import HostError, PeerError
from beeyard.runtime.host_lists import ClientTls, HttpAnswer, Unreachable

# A list of 20,000 nodes in base64 is 600 KiB; 32 MiB is what a server that has gone mad may cost.
ANSWER_BYTES_MAX = 32 << 20
LINE_BYTES_MAX = 8 << 20


class RealHttpClient:
    """`HttpClient` over the network of this machine."""

    def __init__(self, tls: ClientTls | None = None) -> None:
        # Without the environment: a proxy for people's browsers has no place between a daemon and its servers.
        self._client = httpx2.AsyncClient(
            verify=_context(tls or ClientTls()), trust_env=False, limits=httpx2.Limits(max_connections=None)
        )

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        """See `HttpClient.request`."""
        headers = {"content-type": "application/json"} if body is not None else {}
        with _told(url):
            timeout = httpx2.Timeout(timeout_s, pool=None)
            async with self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as response:
                pieces = [piece async for piece in _bounded(url, response)]
        named = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(response.status_code, b"".join(pieces), named)

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `HttpClient.lines`."""
        timeout = httpx2.Timeout(connect_timeout_s, read=None, pool=None)
        headers = {"content-type": "application/json"}
        with _told(url):
            async with self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    raise PeerError(f"{_server(url)} answered {response.status_code}")
                yield _lines(url, response)

    async def aclose(self) -> None:
        """See `HttpClient.aclose`."""
        await self._client.aclose()


async def _bounded(url: str, response: httpx2.Response) -> AsyncIterator[bytes]:
    n_bytes = 0
    async for piece in response.aiter_bytes():
        n_bytes += len(piece)
        if n_bytes > ANSWER_BYTES_MAX:
            raise PeerError(f"{_server(url)} answers with more than {ANSWER_BYTES_MAX} bytes")
        yield piece


async def _lines(url: str, response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > LINE_BYTES_MAX:
            raise PeerError(f"{_server(url)} sends a line of more than {LINE_BYTES_MAX} bytes")
    if rest.strip():
        yield rest


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn the library's errors into ours."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreachable(f"cannot reach {_server(url)}: {_reason(error)}") from error
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        raise PeerError(f"{_server(url)}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not acceptable: {cause.verify_message.lower()}"
        if isinstance(cause, ssl.SSLError):
            return f"it does not speak TLS as it should: {(cause.reason or str(cause)).lower().replace('_', ' ')}"
        if isinstance(cause, OSError) and cause.strerror:
            return os.strerror(cause.errno).lower() if (cause.errno or 0) > 0 else cause.strerror.lower()
        # Several addresses were tried, each with an error of its own.
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _server(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _context(tls: ClientTls) -> ssl.SSLContext:
    name = tls.ca_file
    try:
        context = ssl.create_default_context(cafile=name or None)
        if tls.certificate_file:
            name = tls.certificate_file
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except ssl.SSLError as error:
        raise HostError(
            f"{name} and what belongs to it are no certificates and key in PEM form: {error.reason}"
        ) from error
    except OSError as error:
        raise HostError(
            f"cannot read {name} or what belongs to it: {(error.strerror or str(error)).lower()}"
        ) from error
    return context


__all__ = ["RealHttpClient"]
