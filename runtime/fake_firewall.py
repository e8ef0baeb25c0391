"""A simulated host's translation of addresses and its foreign sockets: the ports `Firewall` and `Sockets`, with their gates.

It lives outside the daemons, so it survives their crashes as a kernel's tables do, and loses all with the power.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

import trio

from beeyard.core.errors import FirewallError
from beeyard.core.model import HostPort
from beeyard.runtime.host_ports import Firewall, Forward, Sockets
from beeyard.runtime.sim_life import Life


class FakeFirewall:
    """Firewall and sockets of one simulated host."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[Forward, ...]] = {}
        # What foreign programs have: port → whose it is, such as "nginx (pid 812)".
        self.foreign: dict[HostPort, str] = {}
        self.missing = ""  # why this host cannot forward; "" when it can
        self.fails = ""  # why changes fail; "" when they work
        self.fails_late = ""  # why the next change fails behind the table, as a setting that cannot be written
        self.forgotten: list[Forward] = []
        self._altered: dict[str, None] = {}  # tables whose rules somebody has changed
        # By table: set when others changed it, until somebody has heard of it.
        self._changed: dict[str, trio.Event] = {}
        self.answering: dict[str, tuple[str, ...]] = {}  # by namespace: the addresses that datagrams answer from

    def power_cut(self) -> None:
        """All of it is gone, as is what a kernel keeps."""
        self.tables.clear()
        self.answering.clear()

    def flush(self) -> None:
        """Somebody removes all tables, as a firewall that is loaded anew does."""
        for table in list(self.tables):
            del self.tables[table]
            self._changed.setdefault(table, trio.Event()).set()

    def alter(self, table: str) -> None:
        """Somebody takes a rule out of a table."""
        self._altered[table] = None
        self._changed.setdefault(table, trio.Event()).set()

    def is_altered(self, table: str) -> bool:
        """Whether a table restricts less than it should."""
        return table in self._altered

    def leads(self) -> list[Forward]:
        """Everything that this host forwards, sorted. One port twice is a defect: the kernel has one entry for each."""
        forwards = sorted(forward for table in self.tables.values() for forward in table)
        keys = [(f.protocol, f.published, ":" in f.address) for f in forwards]
        assert len(set(keys)) == len(keys), f"a port leads to two tasks: {forwards}"
        return forwards

    async def fault(self) -> str:
        """See `Firewall.fault`."""
        await trio.lowlevel.checkpoint()
        return self.missing

    async def forwards(self, table: str) -> list[Forward]:
        """See `Firewall.forwards`."""
        await trio.lowlevel.checkpoint()
        self._check("read the published ports")
        return list(self.tables.get(table, ()))

    async def apply(self, table: str, forwards: Iterable[Forward], links: str) -> None:
        """See `Firewall.apply`."""
        wanted = tuple(sorted(forwards))
        await trio.lowlevel.checkpoint()
        self._check("publish ports")
        if self.fails:
            raise FirewallError("publish ports", self.fails)
        keys = [(f.protocol, f.published, ":" in f.address) for f in wanted]
        if len(set(keys)) != len(keys):
            raise FirewallError("publish ports", "nft: conflicting elements: File exists")
        self._altered.pop(table, None)
        if wanted:
            self.tables[table] = wanted
        else:
            self.tables.pop(table, None)
        if self.fails_late:
            reason, self.fails_late = self.fails_late, ""
            raise FirewallError("publish ports", reason)

    async def intact(self, table: str) -> bool:
        """See `Firewall.intact`."""
        await trio.lowlevel.checkpoint()
        self._check("read the published ports")
        return table not in self._altered

    async def changed(self, table: str) -> None:
        """See `Firewall.changed`."""
        await self._changed.setdefault(table, trio.Event()).wait()
        del self._changed[table]

    async def answer_from(self, netns: str, interface: str, addresses: Sequence[str]) -> None:
        """See `Firewall.answer_from`."""
        await trio.lowlevel.checkpoint()
        self._check("answer from published ports")
        self.answering[netns] = tuple(addresses)

    async def forget(self, forwards: Sequence[Forward]) -> None:
        """See `Firewall.forget`."""
        await trio.lowlevel.checkpoint()
        self.forgotten += forwards

    async def listening(self) -> list[HostPort]:
        """See `Sockets.listening`."""
        await trio.lowlevel.checkpoint()
        return sorted(self.foreign)

    async def probe(self, port: HostPort) -> str:
        """See `Sockets.probe`."""
        await trio.lowlevel.checkpoint()
        return self.foreign.get(port, "")

    def _check(self, operation: str) -> None:
        if self.missing:
            raise FirewallError(operation, self.missing)


class GatedFirewall:
    """`Firewall` and `Sockets` of one life: each call waits while the machine is paused, and fails once it has crashed."""

    def __init__(self, life: Life, firewall: Firewall, sockets: Sockets) -> None:
        self._life = life
        self._firewall = firewall
        self._sockets = sockets

    async def fault(self) -> str:
        """See `Firewall.fault`."""
        await self._enter()
        return await self._firewall.fault()

    async def forwards(self, table: str) -> list[Forward]:
        """See `Firewall.forwards`."""
        await self._enter()
        return await self._firewall.forwards(table)

    async def apply(self, table: str, forwards: Iterable[Forward], links: str) -> None:
        """See `Firewall.apply`. Once begun it is finished, as by the process that does it."""
        await self._enter()
        with trio.CancelScope(shield=True):
            await self._firewall.apply(table, forwards, links)
        await self._enter()

    async def intact(self, table: str) -> bool:
        """See `Firewall.intact`."""
        await self._enter()
        return await self._firewall.intact(table)

    async def changed(self, table: str) -> None:
        """See `Firewall.changed`."""
        await self._enter()
        await self._firewall.changed(table)
        await self._enter()

    async def answer_from(self, netns: str, interface: str, addresses: Sequence[str]) -> None:
        """See `Firewall.answer_from`."""
        await self._enter()
        await self._firewall.answer_from(netns, interface, addresses)

    async def forget(self, forwards: Sequence[Forward]) -> None:
        """See `Firewall.forget`."""
        await self._enter()
        await self._firewall.forget(forwards)

    async def listening(self) -> list[HostPort]:
        """See `Sockets.listening`."""
        await self._enter()
        return await self._sockets.listening()

    async def probe(self, port: HostPort) -> str:
        """See `Sockets.probe`."""
        await self._enter()
        return await self._sockets.probe(port)

    async def _enter(self) -> None:
        if not await self._life.gate():
            raise OSError(errno.ENODEV, "this machine has crashed")


__all__ = ["FakeFirewall", "GatedFirewall"]
