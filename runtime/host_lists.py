"""Ports to servers where lists of nodes are published: HTTP as a client, ZooKeeper, and files that daemons share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from beeyard.core.errors import PeerError


class ClientTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS to a server, by files. Empty names: the system's own authorities, no client certificate."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class HttpAnswer(msgspec.Struct, frozen=True):
    """One reply, whole."""

    status: int
    body: bytes
    headers: dict[str, str]  # names in lower case


class Unreachable(PeerError):
    """There was no connection: nothing was asked, so another server may be."""


class Untrusted(Unreachable):
    """No known authority has signed the server's certificate."""


class Lines(Protocol):
    """An answer that is read by lines."""

    async def next_line(self) -> bytes | None:
        """The next one that is not empty; None: the answer has ended.

        Raises:
            PeerError
        """


class HttpClient(Protocol):
    """An HTTP/1.1 client that keeps connections for the next request."""

    async def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        *,
        timeout_s: float = 5.0,
    ) -> HttpAnswer:
        """Ask once; a body is sent as JSON.

        Raises:
            PeerError: no answer in time, or no HTTP; names the server and says why. `Unreachable`: it was never asked.
            HostError: files of the TLS cannot be read.
        """

    def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AbstractAsyncContextManager[Lines]:
        """Ask, and read the answer by lines as they come, without an end in time.

        Raises:
            PeerError: as `request`, also while lines are read, and for a status other than 200.
        """

    async def aclose(self) -> None: ...


class Znode(msgspec.Struct, frozen=True):
    """What stands at a path of ZooKeeper."""

    data: bytes
    session: int  # which made it, when it goes with that; 0: it stays


class ZooKeeper(Protocol):
    """One session with ZooKeeper servers, opened at the first use and again when it was lost."""

    async def session(self) -> int:
        """The number of the session that lives now.

        Raises:
            PeerError: no server can be reached within some seconds.
        """

    async def children(self, paths: Sequence[str]) -> list[dict[str, Znode]]:
        """For each path the names below it, with what stands there; none when there is no such path. From then on
        `changed` watches all of them.

        Raises:
            PeerError
        """

    async def changed(self) -> None:
        """Return when something that `children` was asked for may have changed since, or the session was interrupted."""

    async def put_ephemeral(self, path: str, data: bytes) -> None:
        """Have it stand at a path while the session lives, with parents that stay. What another session has there is
        replaced, in one step.

        Raises:
            PeerError
        """

    async def delete(self, path: str) -> None:
        """Remove; a path that is not there is fine.

        Raises:
            PeerError
        """

    async def aclose(self) -> None:
        """End the session, and what goes with it."""


class ListServers(Protocol):
    """How this machine reaches them."""

    def http(self, tls: ClientTls | None = None) -> HttpClient:
        """A client of its own; None: `https` URLs are checked against the system's authorities."""

    def zookeeper(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> ZooKeeper:
        """A session of its own that the servers give up so long after they heard of it last."""

    async def change_file(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """Read a file, or None when there is none, and replace it, with nobody else between who does the same on this
        machine. When `change` gives what is there already, nothing is written.

        Raises:
            DiskError: also when somebody holds it for seconds.
        """


__all__ = [
    "ClientTls",
    "HttpAnswer",
    "HttpClient",
    "Lines",
    "ListServers",
    "Unreachable",
    "Untrusted",
    "Znode",
    "ZooKeeper",
]
