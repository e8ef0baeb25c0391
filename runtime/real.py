"""The real machine: what production passes to a daemon."""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import time
from collections.abc import Sequence

import trio

from beeyard.runtime.host import Database, Executor, Files, Firewall, ListServers, Net, Netlink, NodeHooks, Pki, Sockets
from beeyard.runtime.identifier import IdPool, new_id
from beeyard.runtime.pki import RealPki
from beeyard.runtime.real_files import RealFiles
from beeyard.runtime.real_firewall import RealFirewall
from beeyard.runtime.real_hooks import RealHooks
from beeyard.runtime.real_lists import RealListServers
from beeyard.runtime.real_net import RealNet
from beeyard.runtime.real_sockets import RealSockets
from beeyard.runtime.sqlite_database import SqliteDatabase

# One for the process, so that a child that is forked off can be kept from drawing what its parent draws.
_SYSTEM_IDS = IdPool(random.SystemRandom())
os.register_at_fork(after_in_child=_SYSTEM_IDS.clear)


def no_hooks() -> NodeHooks:
    """The hooks of a host that runs no tasks."""
    return RealHooks("", "", python_path=())


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RealHost:
    """`Host` of this machine. Made by `host`."""

    hostname: str
    rng: random.Random
    net: Net
    pki: Pki
    files: Files
    netlink: Netlink
    executors: Sequence[Executor]
    node_hooks: NodeHooks = dataclasses.field(default_factory=no_hooks)
    firewall: Firewall = dataclasses.field(default_factory=RealFirewall)
    sockets: Sockets = dataclasses.field(default_factory=RealSockets)
    lists: ListServers = dataclasses.field(default_factory=RealListServers)

    def wall_now_s(self) -> float:
        """See `Host.wall_now_s`."""
        return time.time()

    def new_id(self) -> str:
        """See `Host.new_id`."""
        return _SYSTEM_IDS.draw() if isinstance(self.rng, random.SystemRandom) else new_id(self.rng)

    async def running(self) -> None:
        """See `Host.running`: whoever asks runs."""
        await trio.lowlevel.checkpoint()

    async def open_database(self, path: str) -> Database:
        """See `Host.open_database`."""
        return await SqliteDatabase.open(path)

    def resources(self) -> tuple[int, int]:
        """See `Host.resources`: the CPUs this process may use, and all memory of the machine."""
        n_cpus = len(os.sched_getaffinity(0))
        return n_cpus * 1_000_000_000, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def platform(self) -> tuple[str, str]:
        """See `Host.platform`."""
        return os.uname().machine, "linux"


def host(
    *,
    executors: Sequence[Executor] = (),
    node_hooks: NodeHooks | None = None,
    rng: random.Random | None = None,
    netlink: Netlink | None = None,
    hostname: str = "",
) -> RealHost:
    """This machine.

    Args:
        executors: what runs tasks here, in order of preference; an agent's entry point makes them.
        node_hooks: None: there are none.
        rng: None: the operating system's own randomness, good enough for secrets.
        netlink: None: this machine's kernel.
        hostname: "": the machine's own.
    """
    return RealHost(
        hostname=hostname or socket.gethostname(),
        rng=rng or random.SystemRandom(),
        net=RealNet(),
        pki=RealPki(),
        files=RealFiles(),
        netlink=netlink or _kernel(),
        executors=tuple(executors),
        node_hooks=node_hooks or no_hooks(),
    )


def _kernel() -> Netlink:
    # Imported here: a manager on a machine without rights on the network never touches it.
    from beeyard.runtime.real_netlink import RealNetlink

    return RealNetlink()


__all__ = ["RealHost", "host"]
