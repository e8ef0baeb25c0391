"""Lists at a token service, which any manager is: the protocol of classic Swarm's hub, and lists of managers beside it.

    GET    /clusters/TOKEN                    all entries, ["10.0.0.7:3388", ...], as classic Swarm reads them
    POST   /clusters/TOKEN?ttl=SECONDS        one entry as the body, as classic Swarm writes it
    GET    /clusters/TOKEN/lists?after=V&wait_s=S    {"version": V, "lists": {OWNER: [...]}}, held while V is still right
    PUT    /clusters/TOKEN/lists/OWNER?ttl=SECONDS   a manager's list
    DELETE /clusters/TOKEN/lists/OWNER

Source: classic Swarm 1.2.9 discovery/token/token.go. The part below /lists is our own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

from beeyard.core.errors import PeerError
from beeyard.discovery.published.backend import Contents, Lease, understood
from beeyard.discovery.published.entries import legible
from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.runtime.host_lists import HttpAnswer, HttpClient

WAIT_S = 15.0


class TokenBackend:
    """`Backend` at a token service."""

    def __init__(self, url: DiscoveryUrl, http: HttpClient) -> None:
        self._server = url.servers[0]
        path = f"/{url.path}" if url.path else ""
        self._base = f"https://{self._server}{path}/clusters/{quote(url.token, safe='')}"
        self._http = http

    async def read(self) -> Contents:
        """See `Backend.read`."""
        return (await self._read(""))[0]

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`."""
        contents, version = await self._read("")
        while True:
            seen(contents)
            contents, version = await self._read(f"?after={version}&wait_s={WAIT_S:.0f}")

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`. The service knows none: each list says how long it counts."""
        await self._read("")
        return _TokenLease(self, f"/lists/{quote(owner, safe='')}", ttl_s)

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await self._http.aclose()

    async def _read(self, query: str) -> tuple[Contents, int]:
        answer = await self.ask("GET", f"/lists{query}", timeout_s=WAIT_S + 5.0)
        with understood(self._server):
            said = json.loads(answer.body)
            found = {owner: legible("\n".join(entries).encode()) for owner, entries in said["lists"].items()}
            return {owner: entries for owner, entries in found.items() if owner or entries}, int(said["version"])

    async def ask(self, method: str, target: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        """One question about our token."""
        answer = await self._http.request(method, f"{self._base}{target}", body, timeout_s=timeout_s)
        if answer.status >= 300:
            words = ""
            with understood(self._server):
                words = str(json.loads(answer.body)["message"]) if b'"message"' in answer.body else ""
            raise PeerError(f"token service at {self._server}: {words or f'status {answer.status}'}")
        return answer


class _TokenLease:
    def __init__(self, service: TokenBackend, target: str, ttl_s: float) -> None:
        self._service = service
        self._target = target
        self._ttl_s = ttl_s
        self._entries: tuple[str, ...] | None = None

    async def put(self, entries: Sequence[str]) -> None:
        await self._service.ask("PUT", f"{self._target}?ttl={self._ttl_s:g}", json.dumps(list(entries)).encode())
        self._entries = tuple(entries)

    async def renew(self) -> None:
        if self._entries is not None:
            await self.put(self._entries)  # all of it: a service that was restarted knows nothing

    async def revoke(self) -> None:
        if self._entries is not None:
            await self._service.ask("DELETE", self._target)


__all__ = ["TokenBackend"]
