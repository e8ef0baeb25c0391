"""etcd and ZooKeeper as they are, each a process of its own on this machine, and a link to them that can be cut.

`./yard test e2e` unpacks them below `.venv/list-servers`.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from beeyard.runtime import real

ROOT = Path(__file__).parents[2] / ".venv" / "list-servers"
# Started on a machine that is busy with other tests; both take about a second alone.
START_S = 40.0
# Of ZooKeeper: a session is between 2 and 20 of them.
TICK_MS = 400


def free_port() -> int:
    """A port of the loopback that nobody has at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Server:
    """A process that serves at a port, and can be killed and started again with what it had stored.

    Args:
        address: where it listens.
        enter: what runs a command on the host that has the address; empty: on this one.
    """

    def __init__(self, directory: Path, address: str = "127.0.0.1", enter: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.address = address
        self.enter = tuple(enter)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def launch(self) -> None:
        """Start it."""
        assert (ROOT / ".complete").exists(), "./yard test e2e fetches the servers"
        with (self.directory / "log").open("ab") as log:
            command = [*self.enter, *self.command()]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def start(self) -> None:
        """Start it and wait until it answers; on this host."""
        self.launch()
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        while not self.answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
            assert time.monotonic() < deadline_s, f"{self.command()[0]} does not answer"
            time.sleep(0.05)

    def answers(self) -> bool:
        raise NotImplementedError

    def kill(self) -> None:
        """As a power cut ends it. Idempotent: yes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def said(self, question: bytes, end: bytes) -> bool:
        """Whether its answer to some bytes has this in it."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(question)
                return end in connection.recv(4096)
        except OSError:
            return False


class EtcdServer(Server):
    """etcd, one member, quick to elect itself."""

    def __init__(self, directory: Path, address: str = "127.0.0.1", enter: Sequence[str] = ()) -> None:
        super().__init__(directory, address, enter)
        self._peer_port = free_port()

    def command(self) -> list[str]:
        own, peer = f"http://{self.address}:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            str(ROOT / "usr/bin/etcd"),
            *("--data-dir", str(self.directory / "data"), "--heartbeat-interval", "50", "--election-timeout", "500"),
            *("--listen-client-urls", own, "--advertise-client-urls", own),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
        ]

    def answers(self) -> bool:
        return self.said(b"GET /health HTTP/1.0\r\n\r\n", b'"health":"true"')


class ZooKeeperServer(Server):
    """ZooKeeper, alone."""

    def command(self) -> list[str]:
        settings = self.directory / "zoo.cfg"
        settings.write_text(
            f"tickTime={TICK_MS}\ndataDir={self.directory / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={self.address}\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\nmaxClientCnxns=0\n"
        )
        names = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java")
        jars = ":".join(str(ROOT / f"usr/share/java/{name}.jar") for name in (*names, "commons-cli"))
        return [
            *(_java(), "-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars),
            *("org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)),
        ]

    def answers(self) -> bool:
        return self.said(b"ruok", b"imok")


def _java() -> str:
    unpacked = glob.glob(str(ROOT / "usr/lib/jvm/java-17-openjdk-*/bin/java"))
    found = shutil.which("java") or next(iter(unpacked), None)
    assert found, "./yard test e2e fetches Java"
    return found


class ProxiedMachine:
    """A machine that reaches a server through a link of its own, see `lists_conformance.Machine`."""

    def __init__(self, url: str, server_port: int) -> None:
        self.ports = real.host()
        self._url = url
        self._server_port = server_port
        self._port = 0
        self._up = True
        self._standing = trio.CancelScope()

    @property
    def url(self) -> str:
        return self._url.format(port=self._port)

    def cut(self) -> None:
        self._up = False
        self.drop()

    def drop(self) -> None:
        """Break the connections that stand; new ones go through."""
        standing, self._standing = self._standing, trio.CancelScope()
        standing.cancel()

    def mend(self) -> None:
        self._up = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Forward until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._forward, listeners)
            task_status.started()

    async def _forward(self, client: trio.SocketStream) -> None:
        if not self._up:
            return
        watched = self._standing
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self._server_port)
        except OSError:
            return
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, client, server, nursery.cancel_scope)
            nursery.start_soon(_copy, server, client, nursery.cancel_scope)
            while not watched.cancel_called:  # noqa: ASYNC110 (a scope is no event)
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()


async def _copy(source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
    try:
        while data := await source.receive_some(65536):
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    both.cancel()
