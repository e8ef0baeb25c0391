"""Members of one cluster as processes of one kind, and what is done to them and to their network."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import trio

from tests.support.serf_agent import Seen, SerfAgent, serf_agent

PORT = 7946
# Longer than sixty interpreters need to start on two cores that do something else too.
START_S = 180.0


class Member(Protocol):
    """A process of either kind."""

    @property
    def process(self) -> trio.Process: ...

    async def join(self, *addresses: str) -> object: ...

    async def event(self, name: str) -> object: ...

    async def leave(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Ours:
    """A `benchmarks.gossip_member`."""

    def __init__(self, name: str, process: trio.Process, seen: Seen) -> None:
        self.name = name
        self.process = process
        self.started = trio.Event()
        self._seen = seen

    async def read(self) -> None:
        """What it says, until it ends."""
        rest = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                kind, _, about = line.decode(errors="replace").partition(" ")
                if kind == "started":
                    self.started.set()
                elif kind in ("join", "leave", "failed", "update", "reap", "event"):
                    self._seen(self.name, kind, about)
                else:
                    print(f"{self.name}: {line.decode(errors='replace')}", file=sys.stderr)

    async def join(self, *addresses: str) -> None:
        """Order it to join."""
        for address in addresses:
            await self._order(f"join {address}")

    async def event(self, name: str) -> None:
        """Order it to send an event."""
        await self._order(f"event {name}")

    async def leave(self) -> None:
        """Order it to leave, and wait until it has."""
        await self._order("leave")
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

    async def _order(self, words: str) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(words.encode() + b"\n")


class Yard:
    """A number of members that have started and wait. Use as `async with`."""

    def __init__(self, kind: str, n_members: int) -> None:
        self.members: dict[str, Member] = {}
        self.seen: list[tuple[float, str, str, str]] = []  # when, who saw it, what, about whom
        self._kind = kind
        self._addresses = {f"n{number}": f"127.0.1.{number + 1}:{PORT}" for number in range(n_members)}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._stack.callback(nursery.cancel_scope.cancel)
        for name, address in self._addresses.items():
            if self._kind == "real":
                agent = serf_agent(name, address, seen=self._note)
                self.members[name] = await self._stack.enter_async_context(agent)
            else:
                self.members[name] = await self._start_ours(nursery, name, address)
        with trio.fail_after(START_S):
            for member in self.members.values():
                if isinstance(member, Ours):
                    await member.started.wait()
        await trio.sleep(1)
        self.seen.clear()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        for member in self.members.values():
            member.thaw()
            member.kill()
        return await self._stack.__aexit__(kind, error, traceback)

    async def _start_ours(self, nursery: trio.Nursery, name: str, address: str) -> Ours:
        command = [sys.executable, "-m", "benchmarks.gossip_member", name, address]
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        member = Ours(name, process, self._note)
        nursery.start_soon(member.read)
        return member

    def _note(self, observer: str, kind: str, about: str) -> None:
        self.seen.append((trio.current_time(), observer, kind, about))

    def addresses(self, names: Iterable[str]) -> list[str]:
        """Their hosts."""
        return [self._addresses[name].partition(":")[0] for name in names]

    # --- what happens

    async def join_all(self) -> float:
        """Have all others join the first at once; the seconds until everybody knows everybody."""
        first, *others = self.members
        since = trio.current_time()
        async with trio.open_nursery() as nursery:
            for name in others:
                nursery.start_soon(self.members[name].join, self._addresses[first])
        return await self.until_all_alive(timeout_s=60, since=since) - since

    async def until_all_alive(self, *, timeout_s: float, since: float = -1.0) -> float:
        """When everybody had everybody as alive."""
        deadline = trio.current_time() + timeout_s
        n_read = 0
        alive: dict[tuple[str, str], float] = {}
        n_wanted = len(self.members) * (len(self.members) - 1)
        while True:
            for when_s, observer, kind, about in self.seen[n_read:]:
                if observer != about and about in self.members and observer in self.members:
                    if kind == "join":
                        alive[observer, about] = when_s
                    elif kind in ("failed", "leave"):
                        alive.pop((observer, about), None)
            n_read = len(self.seen)
            if len(alive) == n_wanted:
                return max(alive.values())
            if trio.current_time() > deadline:
                print(f"not within {timeout_s} s: {n_wanted - len(alive)} of {n_wanted} missing", file=sys.stderr)
                return float("inf")
            await trio.sleep(0.02)

    async def seen_by_all(
        self, since: float, kind: str, about: str, *, timeout_s: float, all_too: bool = False
    ) -> list[float]:
        """When each member first saw something after `since`; infinity for those that did not in time."""
        deadline = since + timeout_s
        while True:
            first: dict[str, float] = {}
            for when_s, observer, what, whom in self.seen:
                if when_s >= since and (what, whom) == (kind, about):
                    first.setdefault(observer, when_s)
            missing = [name for name in self.members if name not in first and (all_too or name != about)]
            if not missing:
                return [when_s for name, when_s in first.items() if name in self.members]
            if trio.current_time() > deadline:
                return [*first.values(), *(float("inf") for _ in missing)]
            await trio.sleep(0.02)

    def count(self, since: float, kind: str, about: str = "") -> int:
        """How often something was seen after `since`."""
        return sum(when_s >= since and what == kind and about in ("", whom) for when_s, _, what, whom in self.seen)

    # --- what it costs

    def traffic(self) -> tuple[int, int]:
        """Bytes and packets on the loopback since its start."""
        # Not /sys, which goes on to show the namespace that it was mounted in.
        lines = Path("/proc/net/dev").read_text().splitlines()
        (fields,) = [line.split()[1:] for line in lines if line.split()[0] == "lo:"]
        return int(fields[8]), int(fields[9])

    def cpu_s(self) -> float:
        """Processor time of all members."""
        total = 0.0
        for member in self.members.values():
            fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def rss_mib(self) -> float:
        """Memory of a member."""
        pages = [int(Path(f"/proc/{m.process.pid}/statm").read_text().split()[1]) for m in self.members.values()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / len(pages) / (1 << 20)


@contextlib.contextmanager
def _rules(lines: Iterable[str]) -> Iterator[None]:
    script = "table inet gossip { chain in { type filter hook input priority 0;\n" + "\n".join(lines) + "\n}\n}\n"
    subprocess.run(["nft", "-f", "-"], input=script, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "inet", "gossip"], check=True)


def packet_loss(percent: int) -> contextlib.AbstractContextManager[None]:
    """So many of all UDP packets do not arrive."""
    return _rules([f"meta l4proto udp numgen random mod 100 < {percent} drop"])


def partition(some: Iterable[str], others: Iterable[str]) -> contextlib.AbstractContextManager[None]:
    """No datagram gets from some hosts to the others, nor back, and nothing by TCP, which always comes from 127.0.0.1."""
    one, two = ", ".join(some), ", ".join(others)
    return _rules(
        [
            *(f"ip saddr {{ {one} }} ip daddr {{ {two} }} drop", f"ip saddr {{ {two} }} ip daddr {{ {one} }} drop"),
            *(f"tcp dport {PORT} drop", f"tcp sport {PORT} drop"),
        ]
    )


@contextlib.contextmanager
def busy(n_processes: int) -> Iterator[None]:
    """So many processes that want a core each."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_processes)]
    time.sleep(0.5)
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


__all__ = ["Member", "Ours", "SerfAgent", "Yard", "busy", "packet_loss", "partition"]
