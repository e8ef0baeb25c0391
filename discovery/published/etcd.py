"""Lists in etcd, by the JSON gateway of its v3 API.

Source: etcd 3.4 Documentation/dev-guide/api_grpc_gateway.md. Keys and values are base64, 64-bit numbers come as strings, and
fields that are zero are left out.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import trio

from beeyard.core.errors import HostError, PeerError
from beeyard.discovery.published.backend import GATHER_S, OTHERS, RELIST_S, Contents, Lease, LeaseLost, Wake, understood
from beeyard.discovery.published.entries import legible, written
from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.runtime.host_lists import HttpClient, Unreachable

NOT_FOUND = 5  # Source: google.golang.org/grpc/codes
LEASE_NOT_FOUND = "requested lease not found"  # Source: etcd rpctypes `ErrGRPCLeaseNotFound`


class EtcdError(PeerError):
    """etcd said no."""

    def __init__(self, reason: str, code: object) -> None:
        super().__init__(reason)
        self.code = code


class EtcdBackend:
    """`Backend` on etcd v3."""

    def __init__(self, url: DiscoveryUrl, http: HttpClient) -> None:
        scheme = "https" if url.is_tls else "http"
        self._servers = [f"{scheme}://{server}" for server in url.servers]
        self._http = http
        # With a slash in front, as the keys of classic Swarm's time have it.
        self._lists = f"/{url.lists_path}/".encode()
        self._others = f"/{url.path}/".encode()

    async def read(self) -> Contents:
        """See `Backend.read`."""
        return (await self._read())[0]

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`. From the revision of what was read on, nothing is missed; whatever breaks a watch, also that
        this revision was compacted away, has all read anew."""
        contents, revision = await self._read()
        wake = Wake()
        async with trio.open_nursery() as nursery:
            for prefix in (self._lists, self._others):
                nursery.start_soon(self._watch, prefix, revision + 1, wake)
            failure = None
            try:
                await self._keep_reading(seen, contents, wake)
            except (PeerError, HostError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _keep_reading(self, seen: Callable[[Contents], None], contents: Contents, wake: Wake) -> None:
        seen(contents)
        while True:
            told = await wake.wait(RELIST_S)
            if told:
                await trio.sleep(GATHER_S)
            before, (contents, _) = contents, await self._read()
            seen(contents)
            if not told and contents != before:
                raise PeerError("etcd's watch has told nothing of changes")

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`."""
        answer = await self._call("lease/grant", {"TTL": str(math.ceil(ttl_s))})
        with understood("etcd"):
            return _EtcdLease(self, int(answer["ID"]), self._lists + owner.encode())

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await self._http.aclose()

    async def _read(self) -> tuple[Contents, int]:
        """What there is, and the revision at which it was so."""
        asked = [{"request_range": _range(prefix)} for prefix in (self._lists, self._others)]
        answer = await self._call("kv/txn", {"success": asked})
        with understood("etcd"):
            lists, others = (r["response_range"].get("kvs", ()) for r in answer["responses"])
            contents = {
                base64.b64decode(kv["key"]).removeprefix(self._lists).decode("utf-8", "replace"): legible(_value(kv))
                for kv in lists
            }
            entries = tuple(sorted({entry for kv in others for entry in legible(_value(kv))}))
            return contents | ({OTHERS: entries} if entries else {}), int(answer["header"]["revision"])

    async def _watch(self, prefix: bytes, revision: int, wake: Wake) -> None:
        request = {"create_request": {**_range(prefix), "start_revision": str(revision)}}
        try:
            url = f"{self._servers[0]}/v3/watch"
            async with self._http.lines("POST", url, json.dumps(request).encode()) as lines:
                while (line := await lines.next_line()) is not None:
                    said = _decoded(line)
                    result = said.get("result", {})
                    if "error" in said or result.get("canceled"):
                        why = (
                            f"compacted at revision {result['compact_revision']}"
                            if "compact_revision" in result
                            else line
                        )
                        raise PeerError(f"etcd has ended the watch: {why!s}")
                    if result.get("events"):
                        wake.ring()
            raise PeerError(f"etcd at {self._servers[0]} has ended the watch")
        except (PeerError, HostError) as error:
            self._next_server()
            wake.fail(error)

    async def _call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a server; the others when it cannot be reached, which is when asking again cannot do a thing twice."""
        for _ in range(len(self._servers) - 1):
            try:
                return await self._ask(method, body)
            except Unreachable:
                continue
        return await self._ask(method, body)

    async def _ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._http.request("POST", f"{self._servers[0]}/v3/{method}", json.dumps(body).encode())
        except PeerError:
            self._next_server()
            raise
        said = _decoded(answer.body)
        if answer.status != 200:
            reason = str(said.get("message") or said.get("error") or f"status {answer.status}")
            if answer.status >= 500 and LEASE_NOT_FOUND not in reason:
                self._next_server()
            raise EtcdError(f"etcd at {self._servers[0]}: {reason}", said.get("code", 0))
        return said

    def _next_server(self) -> None:
        self._servers.append(self._servers.pop(0))


class _EtcdLease:
    def __init__(self, etcd: EtcdBackend, number: int, key: bytes) -> None:
        self._etcd = etcd
        self._number = number
        self._key = key

    async def put(self, entries: Sequence[str]) -> None:
        body = {"key": _base64(self._key), "value": _base64(written(entries)), "lease": str(self._number)}
        await self._ask("kv/put", body)

    async def renew(self) -> None:
        answer = await self._ask("lease/keepalive", {"ID": str(self._number)})
        with understood("etcd"):
            left_s = int(answer["result"].get("TTL", 0))
        if left_s <= 0:
            raise LeaseLost("the lease at etcd has run out")

    async def revoke(self) -> None:
        try:
            await self._ask("lease/revoke", {"ID": str(self._number)})
        except LeaseLost:
            return

    async def _ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._etcd._call(method, body)
        except EtcdError as error:
            if error.code == NOT_FOUND or LEASE_NOT_FOUND in error.reason:
                raise LeaseLost("the lease at etcd has run out") from error
            raise


def _range(prefix: bytes) -> dict[str, str]:
    """All keys that begin so. The prefix ends with a slash, so the end of the range needs no carry."""
    return {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + bytes([prefix[-1] + 1]))}


def _value(kv: dict[str, Any]) -> bytes:
    return base64.b64decode(kv.get("value", ""))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(data: bytes) -> dict[str, Any]:
    with understood("etcd"):
        said: dict[str, Any] = {**json.loads(data)}
        return said


__all__ = ["EtcdBackend", "EtcdError"]
