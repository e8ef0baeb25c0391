"""Translation of addresses on a real Linux host, by the `nft` command of Debian's package nftables.

A change is one process of some 10 ms and one transaction in the kernel (42 ms for 1,000 tasks with two ports in both families
each); libnftables in this process would be a C library of a megabyte for what happens a few times a second at most.

Settings that are changed besides, all below /proc/sys/net, while there is something to forward:

    ipv4/conf/IF/forwarding        1 on each interface that had 0: packets that come in there may go on to a task
    ipv6/conf/IF/force_forwarding  1 likewise, on Linux 6.17 and later
    ipv6/conf/all/forwarding       1 on older kernels, which have no such setting for one interface; then each interface
                                   that takes router advertisements (accept_ra 1) gets accept_ra 2, to go on doing so

What the agent switched on forwards for nobody else, see `runtime.nft_script`; with the last forward it is switched off again.
Which those are is noted in the table, and besides in `ipv4/conf/IF/tag`, a number that is for such notes: the table may be
removed by others, and then nothing else would know that the interface has to be restricted, and closed at the end.
Where an administrator has switched forwarding on for all interfaces, nothing is changed or restricted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog
import trio

from beeyard.core.errors import FirewallError
from beeyard.runtime import nft_script, real_conntrack
from beeyard.runtime.host_ports import Forward
from beeyard.runtime.real_nft_events import NftChanges

_SETTINGS = "/proc/sys/net"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_TRIAL = "beeyard-trial"
_OURS = "beeyard-"  # how the tables of all agents of a host begin
# In `tag`: this, plus a bit for each family in which the interface was opened.
_TAG, _TAG4, _TAG6 = 0xBEE0, 1, 2
_MISSING = "the command nft is missing; install the package nftables"

log = structlog.get_logger(__name__)


class _Made(NamedTuple):
    """What a table restricts."""

    rules: tuple[str, ...]
    opened: tuple[tuple[str, ...], tuple[str, ...]]


class RealFirewall:
    """The port `Firewall` of this host."""

    def __init__(self) -> None:
        self._works = False
        self._changes = NftChanges()
        self._made: dict[str, _Made] = {}  # by table, as it was when it had been made
        self._lock = trio.Lock()  # the settings are read, changed and remembered in the table: one change at a time

    async def fault(self) -> str:
        """See `Firewall.fault`. Once it works, that is not tried again."""
        if not self._works:
            try:
                await self._nft(nft_script.trial(_TRIAL), "try nftables")
            except FirewallError as error:
                return error.reason
            self._works = True
        return ""

    async def forwards(self, table: str) -> list[Forward]:
        """See `Firewall.forwards`."""
        listing = await self._list(table)
        try:
            return nft_script.read_table(listing) if listing else []
        except ValueError as error:
            raise FirewallError("read the published ports", str(error)) from error

    async def apply(self, table: str, forwards: Iterable[Forward], links: str) -> None:
        """See `Firewall.apply`. Cancellation: once begun it is finished."""
        wanted = list(forwards)
        async with self._lock:
            with trio.CancelScope(shield=True):
                listing = await self._list(table)
                before = _opened_before(listing)
                if not wanted:
                    if any(before) and not await self._others(table):
                        _close(before)
                    self._made.pop(table, None)
                    if listing:
                        await self._change(table, nft_script.no_table(table), "stop publishing ports")
                    return
                opened = _to_open(before, links)
                # What restricts comes first.
                await self._change(table, nft_script.whole_table(table, wanted, links, *opened), "publish ports")
                made = self._made.get(table)
                rules = made.rules if made is not None else _rules(await self._list(table))
                self._made[table] = _Made(rules, (tuple(sorted(opened[0])), tuple(sorted(opened[1]))))
                _open(opened, links)

    async def intact(self, table: str) -> bool:
        """See `Firewall.intact`."""
        async with self._lock:
            made = self._made.get(table)
            if made is None:
                return True
            listing = await self._list(table)
            if listing and (_rules(listing), nft_script.read_opened(listing)) == made:
                return True
            # Not to be believed any more: somebody may have changed the table while it was looked at the first time.
            del self._made[table]
            return False

    async def changed(self, table: str) -> None:
        """See `Firewall.changed`."""
        await self._changes.wait(table)

    async def answer_from(self, netns: str, interface: str, addresses: Sequence[str]) -> None:
        """See `Firewall.answer_from`."""
        await self._nft(nft_script.answers(interface, addresses), "answer from published ports", netns)

    async def forget(self, forwards: Sequence[Forward]) -> None:
        """See `Firewall.forget`."""
        try:
            n_forgotten = await trio.to_thread.run_sync(real_conntrack.forget, tuple(forwards))
        except OSError as error:
            log.warning("flows of former tasks may go on", reason=str(error))
        else:
            if n_forgotten:
                log.info("flows of former tasks were ended", flows=n_forgotten)

    async def _list(self, table: str) -> bytes:
        """The table as JSON; empty when there is none."""
        done = await _run(["nft", "--json", "list", "table", "inet", table])
        if done.returncode == 0:
            return bytes(done.stdout)
        if b"No such file or directory" in done.stderr:
            return b""
        raise FirewallError("read the published ports", _reason(done.stderr))

    async def _change(self, table: str, script: str, operation: str) -> None:
        """Change a table; what the kernel tells of that is nobody's news."""
        with self._changes.own(table):
            await self._nft(script, operation)

    async def _others(self, table: str) -> bool:
        """Whether another agent of this host has a table: what was opened is its as well."""
        done = await _run(["nft", "list", "tables", "inet"])
        names = (line.split()[-1] for line in done.stdout.decode(errors="replace").splitlines() if line.strip())
        return any(name.startswith(_OURS) and name not in (table, _TRIAL) for name in names)

    async def _nft(self, script: str, operation: str, netns: str = "") -> None:
        command = ["nft", "-f", "-"]
        done = await _run([*(["nsenter", f"--net={netns}"] if netns else []), *command], script)
        if done.returncode != 0:
            raise FirewallError(operation, _reason(done.stderr))


async def _run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    # Found before it is run, so that what is missing is said in words. Its messages are looked at, hence no translation.
    missing = next((name for name in (command[0], "nft") if shutil.which(name, path=_PATH) is None), None)
    if missing is not None:
        raise FirewallError("use nftables", _MISSING if missing == "nft" else f"the command {missing} is missing")
    try:
        return await trio.run_process(
            command,
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": _PATH, "LC_ALL": "C"},
        )
    except OSError as error:  # no process or descriptor more
        raise FirewallError("use nftables", f"the command {command[0]} cannot be run: {error.strerror}") from error


def _rules(listing: bytes) -> tuple[str, ...]:
    try:
        return nft_script.read_rules(listing) if listing else ()
    except ValueError as error:
        raise FirewallError("read the published ports", str(error)) from error


def _reason(stderr: bytes) -> str:
    said = " ".join(stderr.decode(errors="replace").split())[:300] or "nft failed"
    if "Operation not permitted" in said:
        return f"{said}: the agent needs CAP_NET_ADMIN; run it as root"
    if "No such file or directory" in said or "not supported" in said:
        return f"{said}: the kernel lacks nf_tables, nft_nat, nft_ct or nft_fib; load these modules"
    return said


# --- settings --------------------------------------------------------------------------------------------------------


def _opened_before(listing: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Interfaces whose forwarding is ours, as the table and the tags have noted them; of IPv4 and of IPv6."""
    try:
        four, six = nft_script.read_opened(listing) if listing else ((), ())
    except ValueError as error:
        raise FirewallError("read the published ports", str(error)) from error
    tags = {name: _tag(name) for name in _interfaces(4)}
    return (
        tuple(sorted({*four, *(name for name, tag in tags.items() if tag & _TAG4)})),
        tuple(sorted({*six, *(name for name, tag in tags.items() if tag & _TAG6)})),
    )


def _tag(name: str) -> int:
    """Which bits of an interface's tag are set by us."""
    tag = int(_read(f"ipv4/conf/{name}/tag") or "0")
    return tag - _TAG if _TAG < tag <= _TAG + (_TAG4 | _TAG6) else 0


def _note(name: str, bits: int) -> None:
    """Note on an interface in which families it was opened; one that has somebody else's tag keeps that."""
    if _tag(name) or _read(f"ipv4/conf/{name}/tag") == "0":
        _write(f"ipv4/conf/{name}/tag", str(_TAG + bits if bits else 0))


def _to_open(before: tuple[Sequence[str], Sequence[str]], links: str) -> tuple[list[str], list[str]]:
    """Interfaces whose forwarding is ours to switch on, or is on since we did; of IPv4 and of IPv6."""
    names = [name for name in _interfaces(4) if name != "lo" and not name.startswith(links)]
    four, six = [], []
    if _read("ipv4/conf/all/forwarding") != "1":
        four = [name for name in names if name in before[0] or _read(f"ipv4/conf/{name}/forwarding") == "0"]
    if _forces_ipv6():
        if _read("ipv6/conf/all/forwarding") != "1":
            six = [n for n in names if n in before[1] or _read(f"ipv6/conf/{n}/force_forwarding") == "0"]
    elif before[1] or _read("ipv6/conf/all/forwarding") == "0":
        six = [name for name in names if _read(f"ipv6/conf/{name}/forwarding") is not None]
    return four, six


def _open(opened: tuple[Sequence[str], Sequence[str]], links: str) -> None:
    ours = [name for name in _interfaces(4) if name.startswith(links)]
    for name in sorted({*opened[0], *opened[1]}):
        _note(name, _TAG4 * (name in opened[0]) + _TAG6 * (name in opened[1]))
    for name in (*opened[0], *ours):
        _write(f"ipv4/conf/{name}/forwarding", "1")
    if _forces_ipv6():
        for name in (*opened[1], *ours):
            _write(f"ipv6/conf/{name}/force_forwarding", "1")
    elif opened[1] and _read("ipv6/conf/all/forwarding") == "0":
        for name in opened[1]:
            if _read(f"ipv6/conf/{name}/accept_ra") == "1":
                _write(f"ipv6/conf/{name}/accept_ra", "2")
        _write("ipv6/conf/all/forwarding", "1")


def _close(opened: tuple[Sequence[str], Sequence[str]]) -> None:
    """Forward no more where we began to, unless somebody else wants all to forward by now."""
    if _read("ipv4/conf/all/forwarding") == "0":
        for name in opened[0]:
            _write(f"ipv4/conf/{name}/forwarding", "0")
    if _forces_ipv6():
        for name in opened[1]:
            _write(f"ipv6/conf/{name}/force_forwarding", "0")
    elif opened[1]:
        _write("ipv6/conf/all/forwarding", "0")
    for name in (*opened[0], *opened[1]):
        _note(name, 0)


def _forces_ipv6() -> bool:
    return os.path.exists(f"{_SETTINGS}/ipv6/conf/all/force_forwarding")


def _interfaces(version: int) -> list[str]:
    try:
        return sorted(set(os.listdir(f"{_SETTINGS}/ipv{version}/conf")) - {"all", "default"})
    except FileNotFoundError:
        return []


def _read(name: str) -> str | None:
    """A setting; None when this kernel or interface does not have it."""
    try:
        with open(f"{_SETTINGS}/{name}") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _write(name: str, value: str) -> None:
    try:
        with open(f"{_SETTINGS}/{name}", "w") as file:
            file.write(value)
    except FileNotFoundError:
        return  # An interface may have gone meanwhile.
    except OSError as error:
        raise FirewallError("publish ports", f"write {_SETTINGS}/{name}: {error.strerror}") from error


__all__ = ["RealFirewall"]
