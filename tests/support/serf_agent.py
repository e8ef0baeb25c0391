"""A real `serf agent` of Debian's package as a process, driven over its RPC port and watched through its log.

Source of the RPC: Serf 0.9.4 cmd/serf/command/agent/ipc.go: msgpack maps one after the other, a header and mostly a body.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import trio

# What the agent's log says of members at once; its event stream waits up to 3 s for more of a kind.
MEMBER_LINE = re.compile(r"serf: Event(MemberJoin|MemberLeave|MemberFailed|MemberUpdate|MemberReap): (\S+)")
EVENT_LINE = re.compile(r"agent: Received event: user-event: (.*)")
# Longer than an agent needs to start on a machine that does much else.
START_S = 30.0

Seen = Callable[[str, str, str], None]  # who saw it, what kind of event, about whom


class SerfAgent:
    """One agent. Made by `serf_agent`."""

    def __init__(self, name: str, address: str, process: trio.Process, rpc: str, seen: Seen | None) -> None:
        self.name = name
        self.address = address
        self.process = process
        self.log: deque[str] = deque(maxlen=2000)
        self._rpc = rpc
        self._seen = seen
        self._stream: trio.SocketStream | None = None
        self._unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="replace")
        self._seq = 0
        self._lock = trio.Lock()

    async def read_log(self) -> None:
        """Keep what the agent says, and tell who watches, until it ends."""
        rest = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._line(line.decode(errors="replace"))

    def _line(self, text: str) -> None:
        self.log.append(text)
        if self._seen is not None:
            if found := MEMBER_LINE.search(text):
                self._seen(self.name, found[1].removeprefix("Member").lower(), found[2])
            elif found := EVENT_LINE.search(text):
                self._seen(self.name, "event", found[1])

    async def connect(self) -> None:
        """Shake hands on the RPC port, as soon as it is there."""
        host, _, port = self._rpc.rpartition(":")
        with trio.fail_after(START_S):
            while self._stream is None:
                assert self.process.returncode is None, "\n".join(self.log)
                try:
                    self._stream = await trio.open_tcp_stream(host, int(port))
                except OSError:
                    await trio.sleep(0.05)
            await self.call("handshake", {"Version": 1}, answers=False)

    async def call(self, command: str, body: Mapping[str, Any] | None = None, *, answers: bool = True) -> Any:
        """Ask one thing; the body of the answer, or None when it has none. An error of the agent is an AssertionError."""
        async with self._lock:
            self._seq += 1
            await self._send({"Command": command, "Seq": self._seq}, body)
            header = await self._receive()
            assert header["Seq"] == self._seq
            assert header["Error"] == "" or answers is None, f"{self.name}: {command}: {header['Error']}"
            return await self._receive() if answers else None

    async def join(self, *addresses: str) -> int:
        """Join peers; how many."""
        return int((await self.call("join", {"Existing": list(addresses), "Replay": False}))["Num"])

    async def members(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Name: status and tags."""
        answer = await self.call("members")
        return {member["Name"]: (member["Status"], member["Tags"]) for member in answer["Members"]}

    async def event(self, name: str, payload: bytes = b"", *, coalesce: bool = False) -> None:
        """Send a user event."""
        await self.call("event", {"Name": name, "Payload": payload, "Coalesce": coalesce}, answers=False)

    async def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or change tags."""
        await self.call("tags", {"Tags": dict(tags), "DeleteTags": []}, answers=False)

    async def keys(self, command: str, key: str = "") -> Any:
        """install-key, use-key, remove-key or list-keys."""
        return await self.call(command, {"Key": key} if key else None)

    async def query(self, name: str, payload: bytes = b"", *, timeout_s: float = 2.0) -> dict[str, bytes]:
        """Ask all members; who answered what."""
        async with self._lock:
            self._seq += 1
            body = {
                "FilterNodes": [],
                "FilterTags": {},
                "RequestAck": False,
                "RelayFactor": 0,
                "Timeout": int(timeout_s * 1e9),
                "Name": name,
                "Payload": payload,
            }
            await self._send({"Command": "query", "Seq": self._seq}, body)
            assert (await self._receive())["Error"] == ""
            answers: dict[str, bytes] = {}
            while True:
                await self._receive()
                record = await self._receive()
                if record["Type"] == "done":
                    return answers
                if record["Type"] == "response":
                    payload = record["Payload"]
                    answers[record["From"]] = payload.encode() if isinstance(payload, str) else payload

    async def leave(self) -> None:
        """Leave gracefully; the process ends."""
        await self.call("leave", answers=False)
        await self.process.wait()

    def kill(self) -> None:
        """As a crash."""
        self.process.kill()

    def freeze(self) -> None:
        """Stop the process where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    async def _send(self, header: Mapping[str, Any], body: Mapping[str, Any] | None) -> None:
        assert self._stream is not None
        packed = msgpack.packb(header) + (msgpack.packb(body) if body is not None else b"")
        await self._stream.send_all(packed)

    async def _receive(self) -> Any:
        assert self._stream is not None
        while True:
            for value in self._unpacker:
                return value
            data = await self._stream.receive_some(65536)
            assert data, f"{self.name} hung up: {list(self.log)[-5:]}"
            self._unpacker.feed(data)

    async def aclose(self) -> None:
        """End the process at once."""
        if self._stream is not None:
            await self._stream.aclose()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def serf_agent(
    name: str,
    address: str,
    *flags: str,
    netns: str = "",
    rpc: str = "",
    tags: Mapping[str, str] | None = None,
    seen: Seen | None = None,
) -> AsyncIterator[SerfAgent]:
    """An agent bound to HOST:PORT, for as long as the context lasts. `rpc` "": port 7373 of the same host.

    In a namespace of its own its RPC port is out of reach of this process, and it is watched through its log alone.
    """
    rpc = rpc or f"{address.rpartition(':')[0]}:7373"
    command: Sequence[str] = [
        *(["ip", "netns", "exec", netns] if netns else []),
        *("serf", "agent", f"-node={name}", f"-bind={address}", f"-rpc-addr={rpc}", "-log-level=debug"),
        *(f"-tag={key}={value}" for key, value in (tags or {}).items()),
        *flags,
    ]
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        agent = SerfAgent(name, address, process, rpc, seen)
        try:
            nursery.start_soon(agent.read_log)
            await agent.connect()
            yield agent
        finally:
            with trio.CancelScope(shield=True):
                await agent.aclose()
            nursery.cancel_scope.cancel()


__all__ = ["START_S", "SerfAgent", "serf_agent"]
