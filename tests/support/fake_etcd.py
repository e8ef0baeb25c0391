"""etcd in memory: as much of the JSON gateway of v3 as lists of nodes use, with leases, revisions, watches and compaction.

Statuses, bodies and words as etcd 3.4.23 gives them.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import AsyncGenerator
from typing import Any

import trio

from beeyard.runtime.host_lists import HttpAnswer


@dataclasses.dataclass
class _Lease:
    ttl_s: float
    until_s: float


class FakeEtcd:
    """See the module."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.keys: dict[bytes, tuple[bytes, int, int]] = {}  # value, lease, revision
        self.leases: dict[int, _Lease] = {}
        self.n_watches = 0
        self.deaf = False  # watches that begin or stand now are never told anything any more
        self._events: list[tuple[int, str, bytes, bytes]] = []
        self._changed = trio.Event()

    def tick(self) -> None:
        """Leases run out."""
        for number in [n for n, lease in self.leases.items() if lease.until_s <= trio.current_time()]:
            self._revoke(number)

    def restart(self) -> None:
        """Leases count anew, as after an election."""
        for lease in self.leases.values():
            lease.until_s = trio.current_time() + lease.ttl_s

    def lose_everything(self) -> None:
        """Come back with an empty disk."""
        self.__init__()  # type: ignore[misc]

    def compact(self) -> None:
        """Forget all revisions but the last."""
        self.compacted = self.revision

    def put(self, key: str, value: str, lease: int = 0) -> None:
        """What another program writes."""
        self._write("PUT", key.encode(), value.encode(), lease)

    def delete(self, key: str) -> None:
        """The same."""
        self._write("DELETE", key.encode())

    async def answer(self, method: str, target: str, body: bytes) -> HttpAnswer:
        await trio.lowlevel.checkpoint()
        self.tick()
        asked = json.loads(body)
        name = target.removeprefix("/v3/").replace("/", "_")
        handler = getattr(self, f"_{name}", None)
        if method != "POST" or handler is None:
            return HttpAnswer(404, b'{"error":"Not Found","message":"Not Found","code":5}', {})
        status, said = handler(asked)
        return HttpAnswer(status, json.dumps(said).encode(), {})

    async def lines(self, method: str, target: str, body: bytes) -> AsyncGenerator[bytes, None]:
        assert (method, target) == ("POST", "/v3/watch")
        request = json.loads(body)["create_request"]
        first, end = base64.b64decode(request["key"]), base64.b64decode(request["range_end"])
        after = int(request["start_revision"]) - 1
        self.n_watches += 1
        yield self._said({"created": True})
        if after + 1 <= self.compacted:
            yield self._said({"canceled": True, "compact_revision": str(self.compacted)})
            return
        while True:
            changed = self._changed
            events = [e for e in self._events if e[0] > after and first <= e[2] < end]
            if self.deaf:
                await trio.sleep_forever()
            if events:
                after = events[-1][0]
                yield self._said({"events": [self._event(*event) for event in events]})
                continue
            await changed.wait()

    def _said(self, result: dict[str, Any]) -> bytes:
        return json.dumps({"result": {"header": self._header(), **result}}).encode()

    def _event(self, revision: int, kind: str, key: bytes, value: bytes) -> dict[str, Any]:
        kv = {"key": base64.b64encode(key).decode(), "mod_revision": str(revision)}
        return (
            {"type": kind, "kv": kv} if kind == "DELETE" else {"kv": kv | {"value": base64.b64encode(value).decode()}}
        )

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "member_id": "2", "revision": str(self.revision), "raft_term": "2"}

    def _write(self, kind: str, key: bytes, value: bytes = b"", lease: int = 0) -> None:
        self.revision += 1
        if kind == "PUT":
            self.keys[key] = (value, lease, self.revision)
        else:
            del self.keys[key]
        self._events.append((self.revision, kind, key, value))
        self._changed.set()
        self._changed = trio.Event()

    def _revoke(self, number: int) -> None:
        del self.leases[number]
        for key in [key for key, (_, lease, _) in self.keys.items() if lease == number]:
            self._write("DELETE", key)

    def _lease_grant(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = 7587869134872000000 + self.revision * 1000 + len(self.leases)
        ttl_s = float(asked["TTL"])
        self.leases[number] = _Lease(ttl_s, trio.current_time() + ttl_s)
        return 200, {"header": self._header(), "ID": str(number), "TTL": asked["TTL"]}

    def _lease_keepalive(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        lease = self.leases.get(int(asked["ID"]))
        if lease is None:  # etcd answers, and leaves the zero out
            return 200, {"result": {"header": self._header(), "ID": asked["ID"]}}
        lease.until_s = trio.current_time() + lease.ttl_s
        return 200, {"result": {"header": self._header(), "ID": asked["ID"], "TTL": f"{lease.ttl_s:.0f}"}}

    def _lease_revoke(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if int(asked["ID"]) not in self.leases:
            return _no_lease()
        self._revoke(int(asked["ID"]))
        return 200, {"header": self._header()}

    def _kv_put(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        lease = int(asked.get("lease", 0))
        if lease and lease not in self.leases:
            return _no_lease()
        self._write("PUT", base64.b64decode(asked["key"]), base64.b64decode(asked["value"]), lease)
        return 200, {"header": self._header()}

    def _kv_txn(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        responses = []
        for operation in asked["success"]:
            wanted = operation["request_range"]
            first, end = base64.b64decode(wanted["key"]), base64.b64decode(wanted["range_end"])
            kvs = []
            for key, (value, lease, revision) in sorted(self.keys.items()):
                if first <= key < end:
                    kv = {"key": base64.b64encode(key).decode(), "mod_revision": str(revision), "lease": str(lease)}
                    kvs.append(kv | ({"value": base64.b64encode(value).decode()} if value else {}))
            found = {"kvs": kvs, "count": str(len(kvs))} if kvs else {}
            responses.append({"response_range": {"header": {"revision": str(self.revision)}, **found}})
        return 200, {"header": self._header(), "succeeded": True, "responses": responses}


def _no_lease() -> tuple[int, dict[str, Any]]:
    words = "etcdserver: requested lease not found"
    return 404, {"error": words, "message": words, "code": 5}
