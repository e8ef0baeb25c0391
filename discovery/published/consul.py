"""Lists in Consul's key-value store, each locked by a session of its manager.

Source: Consul's HTTP API, https://developer.hashicorp.com/consul/api-docs/kv, /session, /txn and /features/blocking. Sessions
as classic Swarm had them (libkv store/consul): behaviour "delete", a lock delay of 1 ms.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import trio

from beeyard.core.errors import HostError, PeerError
from beeyard.discovery.published.backend import OTHERS, Contents, Lease, LeaseLost, Wake, understood
from beeyard.discovery.published.entries import legible, written
from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.runtime.host_lists import HttpAnswer, HttpClient

WAIT_S = 15.0  # for which a question is held when nothing changes; Consul adds up to a sixteenth of it
# Bounds of a session's time. Consul ends it between one and two of them after it was renewed last: half is asked for.
TTL_S_MIN, TTL_S_MAX = 10.0, 86400.0


class ConsulBackend:
    """`Backend` on Consul."""

    def __init__(self, url: DiscoveryUrl, http: HttpClient) -> None:
        self._server = url.servers[0]
        self._base = f"{'https' if url.is_tls else 'http'}://{self._server}/v1"
        self._http = http
        self._lists = f"{url.lists_path}/"
        self._others = f"{url.path}/"

    async def read(self) -> Contents:
        """See `Backend.read`."""
        lists, _ = await self._keys(self._lists, 0)
        others, _ = await self._keys(self._others, 0)
        return self._contents(lists, others)

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`."""
        found: dict[str, list[dict[str, Any]]] = {}
        wake = Wake()
        failure = None
        async with trio.open_nursery() as nursery:
            for prefix in (self._lists, self._others):
                nursery.start_soon(self._watch, prefix, found, wake)
            try:
                while True:
                    await wake.wait(WAIT_S * 2)
                    if len(found) == 2:
                        seen(self._contents(found[self._lists], found[self._others]))
            except (PeerError, HostError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`."""
        ttl_s = min(max(ttl_s / 2, TTL_S_MIN), TTL_S_MAX)
        wanted = {"Name": f"beeyard {owner}", "TTL": f"{ttl_s:.0f}s", "Behavior": "delete", "LockDelay": "1ms"}
        answer = await self.ask("PUT", "/session/create", json.dumps(wanted).encode())
        with understood(self._server):
            return _ConsulLease(self, json.loads(answer.body)["ID"], f"{self._lists}{owner}")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await self._http.aclose()

    async def ask(
        self, method: str, target: str, body: bytes | None = None, *, fine: Sequence[int] = (), timeout_s: float = 5.0
    ) -> HttpAnswer:
        """One question; `fine`: statuses besides 200 that are answers too."""
        answer = await self._http.request(method, f"{self._base}{target}", body, timeout_s=timeout_s)
        if answer.status != 200 and answer.status not in fine:
            words = answer.body.decode("utf-8", "replace").strip()[:200] or f"status {answer.status}"
            if "invalid session" in words.lower():
                raise LeaseLost("the session at Consul has ended")
            raise PeerError(f"Consul at {self._server}: {words}")
        return answer

    async def _watch(self, prefix: str, found: dict[str, list[dict[str, Any]]], wake: Wake) -> None:
        """Keep what stands below a prefix up to date."""
        index = 0
        try:
            while True:
                keys, index_now = await self._keys(prefix, index)
                # As Consul's documentation has it: an index that goes back begins anew.
                index, changed = (0 if index_now < index else index_now), index_now != index
                if changed or prefix not in found:
                    found[prefix] = keys
                    wake.ring()
                if index == 0:
                    await trio.sleep(1.0)
        except (PeerError, HostError) as error:
            wake.fail(error)

    async def _keys(self, prefix: str, index: int) -> tuple[list[dict[str, Any]], int]:
        """What stands below a prefix, and its index; with an index, once that has changed or after `WAIT_S`."""
        blocking = f"&index={index}&wait={WAIT_S:.0f}s" if index else ""
        target = f"/kv/{quote(prefix)}?recurse=true{blocking}"
        answer = await self.ask("GET", target, fine=(404,), timeout_s=WAIT_S * 1.25 + 5.0 if index else 5.0)
        if "x-consul-index" not in answer.headers:
            raise PeerError(f"what answers at {self._server} is not Consul")
        with understood(self._server):
            keys: list[dict[str, Any]] = json.loads(answer.body) if answer.status == 200 else []
            return keys, int(answer.headers["x-consul-index"])

    def _contents(self, lists: list[dict[str, Any]], others: list[dict[str, Any]]) -> Contents:
        with understood(self._server):
            contents = {key["Key"].removeprefix(self._lists): legible(_value(key)) for key in lists}
            entries = tuple(sorted({entry for key in others for entry in legible(_value(key))}))
        return contents | ({OTHERS: entries} if entries else {})


class _ConsulLease:
    def __init__(self, consul: ConsulBackend, session: str, key: str) -> None:
        self._consul = consul
        self._session = session
        self._key = key

    async def put(self, entries: Sequence[str]) -> None:
        value = written(entries)
        answer = await self._consul.ask("PUT", f"/kv/{quote(self._key)}?acquire={self._session}", value)
        if answer.body.strip() != b"true":
            await self._take_over(value)

    async def _take_over(self, value: bytes) -> None:
        """The session of an earlier life has the key: exchange it for ours in one step, then end it."""
        answer = await self._consul.ask("GET", f"/kv/{quote(self._key)}", fine=(404,))
        with understood("Consul"):
            found = json.loads(answer.body)[0] if answer.status == 200 else {}
            session = found.get("Session", "")
        if not session:
            raise PeerError(f"Consul does not give {self._key} away yet")
        steps = []
        for verb, whose in (("unlock", session), ("lock", self._session)):
            key = {"Verb": verb, "Key": self._key, "Value": base64.b64encode(value).decode(), "Session": whose}
            steps.append({"KV": key})
        answer = await self._consul.ask("PUT", "/txn", json.dumps(steps).encode(), fine=(409,))
        if answer.status == 409:
            raise PeerError(f"Consul does not give {self._key} away: {answer.body.decode('utf-8', 'replace')[:200]}")
        await self._consul.ask("PUT", f"/session/destroy/{session}")

    async def renew(self) -> None:
        answer = await self._consul.ask("PUT", f"/session/renew/{self._session}", fine=(404,))
        if answer.status == 404:
            raise LeaseLost("the session at Consul has ended")

    async def revoke(self) -> None:
        await self._consul.ask("PUT", f"/session/destroy/{self._session}")


def _value(key: dict[str, Any]) -> bytes:
    return base64.b64decode(key["Value"] or "")


__all__ = ["ConsulBackend"]
