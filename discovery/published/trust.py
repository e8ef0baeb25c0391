"""What to do when a server's certificate is of an authority that is not known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.runtime.host_lists import HttpAnswer, HttpClient, Lines, Untrusted


class AdvisingHttp:
    """`HttpClient` for a discovery URL: its errors say which option names the authority, and where that is found."""

    def __init__(self, url: DiscoveryUrl, http: HttpClient) -> None:
        self._url = url
        self._http = http

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        """See `HttpClient.request`."""
        try:
            return await self._http.request(method, url, body, timeout_s=timeout_s)
        except Untrusted as error:
            raise Untrusted(f"{error}; {advice(self._url)}") from error

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[Lines]:
        """See `HttpClient.lines`."""
        try:
            async with self._http.lines(method, url, body, connect_timeout_s=connect_timeout_s) as lines:
                yield lines
        except Untrusted as error:
            raise Untrusted(f"{error}; {advice(self._url)}") from error

    async def aclose(self) -> None:
        """See `HttpClient.aclose`."""
        await self._http.aclose()


def advice(url: DiscoveryUrl) -> str:
    """Which option to give, to `beeyard list` and to a manager, and where the file comes from."""
    if url.ca_file:
        return f"the option kv.cacertfile names {url.ca_file}, which is not its authority"
    option = "name its authority with --discovery-opt kv.cacertfile=FILE (a manager's setting: discovery_options)"
    if url.scheme != "token":
        return option
    where = "`docker swarm ca` or `beeyard discovery-token --ca FILE` on the manager that serves the token gives it"
    return f"{option}; {where}"


__all__ = ["AdvisingHttp", "advice"]
