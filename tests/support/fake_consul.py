"""Consul in memory: the key-value store, sessions, transactions and blocking queries, as its API documentation has them.

Source: https://developer.hashicorp.com/consul/api-docs/kv, /session, /txn, /features/blocking; consul's
agent/consul/state/kvs.go and session_ttl.go for what the pages leave open: a session ends at twice its time, words of errors.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from typing import Any
from urllib.parse import parse_qsl, unquote

import trio

from beeyard.runtime.host_lists import HttpAnswer


@dataclasses.dataclass
class _Session:
    ttl_s: float
    behavior: str
    until_s: float


@dataclasses.dataclass
class _Key:
    value: bytes
    session: str
    created: int
    modified: int
    locks: int


class FakeConsul:
    """See the module."""

    def __init__(self) -> None:
        self.index = 10
        self.keys: dict[str, _Key] = {}
        self.sessions: dict[str, _Session] = {}
        self._graves: dict[str, int] = {}  # keys that are gone, with the index of that
        self._n_sessions = 0
        self._changed = trio.Event()

    def tick(self) -> None:
        """Sessions run out, at twice their time."""
        for name in [n for n, session in self.sessions.items() if session.until_s <= trio.current_time()]:
            self._invalidate(name)

    def restart(self) -> None:
        """A new leader gives sessions their whole time again."""
        for session in self.sessions.values():
            session.until_s = trio.current_time() + 2 * session.ttl_s

    def lose_everything(self) -> None:
        """Come back with an empty disk."""
        self.__init__()  # type: ignore[misc]

    def put(self, key: str, value: str) -> None:
        """What another program writes."""
        self._write(key, value.encode(), "")

    async def answer(self, method: str, target: str, body: bytes) -> HttpAnswer:
        await trio.lowlevel.checkpoint()
        self.tick()
        path, _, query = target.partition("?")
        path, asked = unquote(path), dict(parse_qsl(query, keep_blank_values=True))
        if path.startswith("/v1/kv/"):
            key = path.removeprefix("/v1/kv/")
            return await self._get(key, asked) if method == "GET" else self._put(key, asked, body)
        if method == "PUT" and path == "/v1/session/create":
            return self._create(json.loads(body))
        if method == "PUT" and path == "/v1/txn":
            return self._transaction(json.loads(body))
        if found := re.fullmatch(r"/v1/session/(renew|destroy)/(\S+)", path):
            return self._renew(found[2]) if found[1] == "renew" else self._destroy(found[2])
        return HttpAnswer(404, b"", {})

    async def _get(self, key: str, asked: dict[str, str]) -> HttpAnswer:
        recurse, after = "recurse" in asked, int(asked.get("index", "0"))
        deadline_s = trio.current_time() + float(asked.get("wait", "300s").removesuffix("s"))
        while True:
            changed = self._changed
            found = {n: k for n, k in sorted(self.keys.items()) if n.startswith(key) and (recurse or n == key)}
            graves = [index for name, index in self._graves.items() if name.startswith(key)]
            index = max([k.modified for k in found.values()] + graves, default=self.index if not found else 1)
            if not after or index > after or trio.current_time() >= deadline_s:
                break
            with trio.move_on_at(deadline_s):
                await changed.wait()
        headers = {"x-consul-index": str(index), "x-consul-knownleader": "true"}
        if not found:
            return HttpAnswer(404, b"", headers)
        return HttpAnswer(200, json.dumps([self._shown(n, k) for n, k in found.items()]).encode(), headers)

    def _shown(self, name: str, key: _Key) -> dict[str, Any]:
        shown: dict[str, Any] = {"LockIndex": key.locks, "Key": name, "Flags": 0}
        shown["Value"] = base64.b64encode(key.value).decode() if key.value else None
        if key.session:
            shown["Session"] = key.session
        return shown | {"CreateIndex": key.created, "ModifyIndex": key.modified}

    def _put(self, name: str, asked: dict[str, str], body: bytes) -> HttpAnswer:
        session = asked.get("acquire", "")
        if session and session not in self.sessions:
            return HttpAnswer(500, f'invalid session "{session}"'.encode(), {})
        held = self.keys[name].session if name in self.keys else ""
        if session and held not in ("", session):
            return _json(False)
        self._write(name, body, session or held, locked=bool(session) and held != session)
        return _json(True)

    def _write(self, name: str, value: bytes, session: str, *, locked: bool = False) -> None:
        self.index += 1
        before = self.keys.get(name)
        created, locks = (before.created, before.locks) if before else (self.index, 0)
        self.keys[name] = _Key(value, session, created, self.index, locks + locked)
        self._graves.pop(name, None)
        self._tell()

    def _create(self, asked: dict[str, Any]) -> HttpAnswer:
        ttl_s = float(asked["TTL"].removesuffix("s"))
        if not 10.0 <= ttl_s <= 86400.0:
            words = f"Invalid Session TTL '{ttl_s * 1e9:.0f}', must be between [10s=24h0m0s]"
            return HttpAnswer(400, words.encode(), {})
        self._n_sessions += 1
        name = f"00000000-0000-0000-0000-{self._n_sessions:012x}"
        self.sessions[name] = _Session(ttl_s, asked["Behavior"], trio.current_time() + 2 * ttl_s)
        return _json({"ID": name})

    def _renew(self, name: str) -> HttpAnswer:
        session = self.sessions.get(name)
        if session is None:
            return HttpAnswer(404, f"Session id '{name}' not found".encode(), {})
        session.until_s = trio.current_time() + 2 * session.ttl_s
        return _json([{"ID": name, "TTL": f"{session.ttl_s:g}s", "Behavior": session.behavior}])

    def _destroy(self, name: str) -> HttpAnswer:
        self._invalidate(name)
        return _json(True)

    def _invalidate(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        for key in [key for key, held in self.keys.items() if session and held.session == name]:
            if session is not None and session.behavior == "delete":
                self.index += 1
                del self.keys[key]
                self._graves[key] = self.index
                self._tell()
            else:
                self._write(key, self.keys[key].value, "")

    def _transaction(self, steps: list[dict[str, Any]]) -> HttpAnswer:
        held = {name: key.session for name, key in self.keys.items()}
        for number, step in enumerate(steps):
            verb, name, session = step["KV"]["Verb"], step["KV"]["Key"], step["KV"]["Session"]
            wrong = ""
            if verb == "unlock" and held.get(name) != session:
                wrong = "failed to unlock key, lock isn't held, or is held by another session"
            elif verb == "lock" and session not in self.sessions:
                wrong = f'invalid session "{session}"'
            elif verb == "lock" and held.get(name, "") not in ("", session):
                wrong = "failed to lock key, lock is already held"
            if wrong:
                return _json({"Results": None, "Errors": [{"OpIndex": number, "What": wrong}]}, 409)
            held[name] = session if verb == "lock" else ""
        for step in steps:
            kv = step["KV"]
            session = kv["Session"] if kv["Verb"] == "lock" else ""
            self._write(kv["Key"], base64.b64decode(kv["Value"]), session, locked=bool(session))
        return _json({"Results": [], "Errors": None})

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _json(value: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value).encode() + b"\n", {"content-type": "application/json"})
