"""The ports: the full list of what is not deterministic about a machine, as Protocols.

`manager.daemon.run(host, config)` and `agent.daemon.run(host, config)` get a `Host` and reach the outside world through it
alone. Production passes `runtime.real.host()`, the simulator `world.host("m1")`; nothing else differs. Time is not a port:
it is trio's own clock, which the simulator replaces. `Host.running` is where a paused machine is felt.
Every implementation passes the conformance functions in `tests/support/conformance.py`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import trio

from beeyard.core.states import Role
from beeyard.runtime.host_kernel import Netlink
from beeyard.runtime.host_lists import ListServers
from beeyard.runtime.host_ports import Datagrams, Firewall, Forward, Group, Multicast, Sockets
from beeyard.runtime.host_tasks import (
    NO_ADDITIONS,
    Additions,
    Controller,
    Executor,
    ExitStatus,
    HookAnswer,
    Mount,
    NodeHooks,
    SeenPath,
)
from beeyard.runtime.netlink_format import RequestRefused

# --- network ---------------------------------------------------------------------------------------------------------


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What one side of a TLS 1.3 connection shows and believes. Empty bytes: shows none / believes anyone."""

    certificate_pem: bytes = b""
    key_pem: bytes = b""
    ca_certificate_pem: bytes = b""


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A verified certificate of the other side."""

    node_id: str
    role: Role
    serial: str
    not_after_s: float


@dataclasses.dataclass(frozen=True, eq=False)
class Connection:
    """A connected byte stream and who is at the other end."""

    stream: trio.abc.Stream
    remote: str  # "tcp://10.0.0.7:41822" or "unix:"
    peer: PeerCertificate | None = None  # None: TLS without a client certificate, or no TLS
    peer_uid: int | None = None  # unix sockets only


class Listener(Protocol):
    """A bound address."""

    @property
    def address(self) -> str:
        """Where it really listens: "tcp://10.0.0.7:2377", with the port that the kernel chose for port 0."""

    async def serve(self, handler: Callable[[Connection], Awaitable[None]]) -> None:
        """Run `handler` for each connection, handshake done, in a nursery of its own until cancelled.

        A failing handshake (10 s bound, at most 64 at once) or handler ends that connection alone, is logged with the
        reason, and never ends the listener. Streams are closed when their handler returns.
        """

    async def aclose(self) -> None: ...


class Net(Protocol):
    """Streams and datagrams. Addresses: "tcp://HOST:PORT" (IPv6 in brackets), "unix:///PATH" or "udp://HOST:PORT"."""

    async def listen(
        self,
        address: str,
        credentials: Callable[[], Credentials] | None = None,
        *,
        socket_mode: int = 0o660,
        socket_group: str = "",
    ) -> Listener:
        """Bind. With credentials it is TLS 1.3 and asks for a client certificate, which may be absent.

        `credentials` is called for each handshake, so a renewed certificate or CA counts at once. A certificate that is
        shown must be valid, unexpired and of the CA, else the handshake fails. For unix sockets `socket_mode` and
        `socket_group` (kept as root's when the group does not exist) guard the file; a stale file is replaced, a file
        that somebody listens on is an error.

        Raises:
            HostError: the address cannot be bound; names it and says why.
        """

    async def dial(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = 10.0
    ) -> Connection:
        """Connect; with credentials TLS 1.3. Without a CA in them the server's certificate is not checked.

        The name in a manager's certificate is not compared with the address (addresses move); its role must be manager.

        Raises:
            PeerError: cannot connect, or the certificate is not acceptable; the sentence names the address.
            NoSuchSocket: the same of a unix socket that does not exist.
            PortClosed: the same of a host that is there and says that nothing listens.
        """

    async def datagrams(
        self, address: str, *, multicast: Multicast | None = None, receive_buffer_bytes: int = 0
    ) -> Datagrams:
        """Bind a datagram socket to "udp://HOST:PORT"; "[::]" hears IPv6 alone.

        `receive_buffer_bytes` is asked of the kernel, and half of it and so on until it is granted; 0: the system's own.

        Raises:
            HostError: the address cannot be bound; names it and says why.
        """

    async def resolve(self, host: str) -> list[str]:
        """The IPv4 and IPv6 addresses of a name, best first, each once; an address gives itself.

        Raises:
            PeerError: there is none; names the host and says why.
        """

    async def source_to(self, host: str) -> str:
        """The address of this machine from which packets to another address leave, by its routes.

        Raises:
            PeerError: no route leads there.
        """


# --- identities ------------------------------------------------------------------------------------------------------


class Pki(Protocol):
    """Keys and certificates. Synchronous: each call is well under 2 ms."""

    def new_authority(self, organization: str, now_s: float) -> tuple[bytes, bytes]:
        """A self-signed CA valid for 20 years: (certificate PEM, key PEM)."""

    def new_request(self) -> tuple[bytes, bytes]:
        """A fresh key and a certificate request for it: (CSR PEM, key PEM)."""

    def sign(
        self,
        authority: tuple[bytes, bytes],
        csr_pem: bytes,
        *,
        node_id: str,
        role: Role,
        organization: str,
        now_s: float,
        valid_s: float,
        names: Sequence[str] = (),
    ) -> bytes:
        """A certificate: CN = node id (or a client's name), OU = role, O = cluster id; back-dated by an hour.

        With `names`, host names and addresses, it is a server's whom clients call by one of these.

        Raises:
            RemoteProtocolError: the request is not a valid CSR.
        """

    def inspect(self, certificate_pem: bytes) -> PeerCertificate:
        """What a node's certificate says, unverified.

        Raises:
            RemoteProtocolError: it is not a certificate of a node.
        """

    def digest(self, ca_certificate_pem: bytes) -> str:
        """SHA-256 of the CA's DER form as 50 base36 digits, as in a join token."""


# --- disk ------------------------------------------------------------------------------------------------------------


class Files(Protocol):
    """Small files of a daemon. All paths are absolute. Errors are `DiskError`s."""

    async def read(self, path: str) -> bytes | None:
        """The content, or None when there is no such file."""

    async def replace(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Write whole and durably: after a crash there is the old content or the new, never a part. Makes parents."""

    async def append(self, path: str, data: bytes) -> None:
        """Write at the end of a file, made with its parents when it is missing; readable by its owner alone.

        Not durable: after a crash the end may be missing, but nothing else stands there. Nobody else may write to it.
        """

    async def remove(self, path: str) -> None:
        """Remove durably; a missing file is fine."""

    async def list(self, directory: str) -> list[str]:
        """File names in a directory, sorted; empty when it does not exist."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """One stored object as bytes; `data` None says that it was deleted."""

    index: int  # store index of this write
    kind: str
    id: str
    data: bytes | None


class Compacted(Exception):
    """The log no longer reaches back to the index asked for: take a snapshot and start from there."""


class Database(Protocol):
    """The durable store below `manager.store`: one writer, whole batches, indices that only rise."""

    async def load(self) -> tuple[int, list[Record]]:
        """The last index and every live object, in order of index."""

    async def commit(self, batch: Sequence[Record]) -> None:
        """Append a batch, all or nothing; on return it survives a power cut. Not cancellable once begun.

        Raises:
            DiskError: nothing of it is stored.
        """

    async def changes(self, since: int) -> list[Record]:
        """All writes with an index above `since`, in order, deletions included.

        Raises:
            Compacted: some of them are no longer kept (10,000 are).
        """

    async def aclose(self) -> None: ...


# --- the host --------------------------------------------------------------------------------------------------------


class Host(Protocol):
    """One machine, as a daemon sees it."""

    @property
    def hostname(self) -> str: ...

    @property
    def rng(self) -> random.Random:
        """The only source of randomness."""

    @property
    def net(self) -> Net: ...

    @property
    def pki(self) -> Pki: ...

    @property
    def files(self) -> Files: ...

    @property
    def netlink(self) -> Netlink: ...

    @property
    def executors(self) -> Sequence[Executor]: ...

    @property
    def node_hooks(self) -> NodeHooks: ...

    @property
    def firewall(self) -> Firewall: ...

    @property
    def sockets(self) -> Sockets: ...

    @property
    def lists(self) -> ListServers: ...

    def wall_now_s(self) -> float:
        """Seconds since the epoch by this machine's clock, which may be wrong or jump."""

    def new_id(self) -> str:
        """25 base36 digits, as Swarm's ids are."""

    async def running(self) -> None:
        """Return when this machine's CPU runs: at once in production; a paused simulated machine waits here."""

    async def open_database(self, path: str) -> Database:
        """Open or create.

        Raises:
            DiskError: not writable, not a database of this kind, or another process has it open.
        """

    def resources(self) -> tuple[int, int]:
        """What this machine offers: (cpu in 1e-9 cores, memory in bytes)."""

    def platform(self) -> tuple[str, str]:
        """(architecture, operating system) in Docker's names, such as ("x86_64", "linux")."""


__all__ = [
    "NO_ADDITIONS",
    "Additions",
    "Compacted",
    "Connection",
    "Controller",
    "Credentials",
    "Database",
    "Datagrams",
    "Executor",
    "ExitStatus",
    "Files",
    "Firewall",
    "Forward",
    "Group",
    "HookAnswer",
    "Host",
    "ListServers",
    "Listener",
    "Mount",
    "Multicast",
    "Net",
    "Netlink",
    "NodeHooks",
    "PeerCertificate",
    "Pki",
    "Record",
    "RequestRefused",
    "SeenPath",
    "Sockets",
]
