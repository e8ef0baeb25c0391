"""Lists of nodes at real servers: etcd, ZooKeeper, a file, a manager's token service, and Consul's API over real sockets."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.union import Union
from beeyard.discovery.published.url import parse_url
from beeyard.manager.api.http_server import HttpServer, Receive, Scope, Send
from beeyard.runtime import real
from beeyard.runtime.host import Connection
from beeyard.runtime.real_net import RealNet
from deploy.lan import Lan
from tests.support.fake_consul import FakeConsul
from tests.support.list_servers import EtcdServer, ProxiedMachine, Server, ZooKeeperServer, free_port
from tests.support.lists_conformance import A, B, Place, check_place, check_publishing, until

# Long against a pause of this machine, short enough to wait for.
TTL_S = 4.0
PATIENCE_S = 8.0  # what takes a moment, on a machine that is busy with other tests
# etcd looks for leases that are over twice a second, ZooKeeper each tick.
EXPIRY_S = 2 * TTL_S + PATIENCE_S
START_S = 40.0  # for daemons to start there


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Both, for the tests of this module."""
    found: dict[str, Server] = {
        "etcd": EtcdServer(tmp_path_factory.mktemp("etcd")),
        "zk": ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")),
    }
    try:
        for server in found.values():
            server.start()
        yield found
    finally:
        for server in found.values():
            server.kill()


def a_place(nursery: trio.Nursery, url: str, port: int, *, leases_end: bool = True) -> Place:
    """`url` has {port} where a machine's own link to the server goes."""

    async def machine() -> ProxiedMachine:
        made = ProxiedMachine(url, port)
        await nursery.start(made.run)
        return made

    return Place(machine=machine, ttl_s=TTL_S, expiry_s=EXPIRY_S, leases_end=leases_end, patience_s=PATIENCE_S)


@asynccontextmanager
async def proxies() -> AsyncIterator[trio.Nursery]:
    """Where links live."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def test_real_servers_keep_the_same_promises(servers: dict[str, Server], tmp_path: Path) -> None:
    """Those that are checked in memory, at the same time at each of them."""
    nodes = tmp_path / "nodes"
    nodes.touch()
    async with proxies() as links, trio.open_nursery() as nursery:
        etcd, zookeeper = servers["etcd"].port, servers["zk"].port
        nursery.start_soon(check_place, a_place(links, "etcd://127.0.0.1:{port}/check", etcd))
        nursery.start_soon(check_place, a_place(links, "zk://127.0.0.1:{port}/check", zookeeper))
        nursery.start_soon(check_place, a_place(links, f"file://{nodes}", 0, leases_end=False))
        nursery.start_soon(_check_consul, links)
    assert nodes.read_bytes() == b""


async def _check_consul(links: trio.Nursery) -> None:
    """Its sessions take 20 s to end, which the check in memory waits for."""
    consul = FakeConsul()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        target = scope["raw_path"].decode() + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        answer = await consul.answer(scope["method"], target, (await receive())["body"])
        headers = [(n.encode(), v.encode()) for n, v in answer.headers.items()]
        headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    handle: Callable[[Connection], Awaitable[None]] = HttpServer(app).handle
    listener = await RealNet().listen("tcp://127.0.0.1:0")
    links.start_soon(listener.serve, handle)
    port = int(listener.address.rpartition(":")[2])
    await check_publishing(a_place(links, "consul://127.0.0.1:{port}/check", port))


async def test_servers_that_are_killed_and_come_back_lose_no_node(servers: dict[str, Server]) -> None:
    """Away for longer than a lease: what was known stays, and all goes on by itself."""

    async def outage_of(server: Server) -> None:
        server.kill()
        await trio.sleep(TTL_S + 1.0)
        await trio.to_thread.run_sync(server.start)

    async with proxies() as links, trio.open_nursery() as nursery:
        for kind, server in servers.items():
            place = a_place(links, f"{kind}://127.0.0.1:{{port}}/outage", server.port)
            nursery.start_soon(check_publishing, place, lambda server=server: outage_of(server))


async def test_a_broken_watch_of_etcd_misses_nothing(servers: dict[str, Server]) -> None:
    """Although what happened meanwhile was compacted away."""
    async with proxies() as links:
        machine = ProxiedMachine("etcd://127.0.0.1:{port}/watch", servers["etcd"].port)
        await links.start(machine.run)
        backend = open_backend(parse_url(machine.url), machine.ports)
        writer = open_backend(parse_url(f"etcd://127.0.0.1:{servers['etcd'].port}/watch"), real.host())
        union = Union(backend, "watch", random.Random(1), grace_s=60.0)
        links.start_soon(union.run)
        lease = await writer.lease("m1", 60.0)
        await lease.put([A])
        await until(lambda: union.entries() == (A,), PATIENCE_S)
        machine.cut()
        await until(lambda: bool(union.error), PATIENCE_S)
        await lease.put([B])
        await lease.put([A, B])
        await _compact(servers["etcd"])
        machine.mend()
        await until(lambda: union.entries() == (A, B) and not union.error, PATIENCE_S)
        await lease.put([B])
        await until(lambda: union.entries() == (B,), PATIENCE_S)
        await lease.revoke()
        await backend.aclose()
        await writer.aclose()


async def _compact(etcd: Server) -> None:
    http = real.host().lists.http()
    base = f"http://127.0.0.1:{etcd.port}/v3/kv"
    answer = await http.request("POST", f"{base}/txn", b'{"success":[{"request_range":{"key":"AA=="}}]}')
    revision = json.loads(answer.body)["header"]["revision"]
    answer = await http.request("POST", f"{base}/compaction", json.dumps({"revision": revision}).encode())
    assert answer.status == 200
    await http.aclose()


@dataclasses.dataclass
class Site:
    """One host on a LAN of its own, and what runs there. `urls`: of its etcd and its ZooKeeper."""

    host: Lan
    directory: Path
    urls: list[str] = dataclasses.field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)

    @property
    def enter(self) -> list[str]:
        return Lan.enter(self.host.host(1))

    @property
    def address(self) -> str:
        return self.host.address(1)

    def start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Run Python there."""
        with (self.directory / f"{name}.log").open("wb") as log:
            command = [*self.enter, sys.executable, "-m", *arguments]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment}))
        return self.processes[-1]

    def manager(self, name: str, gossip_port: int, *arguments: str) -> subprocess.Popen[bytes]:
        """`beeyard manage`."""
        return self.start(
            name,
            *("beeyard", "manage", "--config", "/dev/null", "--state-dir", str(self.directory / name)),
            *("--listen", f"{self.address}:{free_port()}", "--api-socket", self.socket(name), "--node-name", name),
            *("--self-discovery-port", str(gossip_port), "--discovery-mdns", "", "--discovery-scan", "false"),
            *("--discovery-ttl-s", str(TTL_S), *arguments),
        )

    def socket(self, name: str) -> str:
        return str(self.directory / f"{name}.sock")

    async def beeyard(self, *arguments: str) -> str:
        """What a command prints."""
        command = [*self.enter, sys.executable, "-m", "beeyard", *arguments]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode:
            return f"{done.returncode} {done.stderr.decode()}"
        return done.stdout.decode()

    async def eventually(self, true: Callable[[Mapping[str, Any]], bool], patience_s: float = PATIENCE_S) -> None:
        """Look at what the watcher has written until it is so."""
        deadline_s = time.monotonic() + patience_s
        path = self.directory / "seen"
        while not path.exists() or not true(json.loads(path.read_text())):
            assert time.monotonic() < deadline_s, (path.exists() and path.read_text(), self.logs())
            await trio.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.directory.glob("*.log")))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """With etcd and ZooKeeper; nobody waits for these two, as managers do not."""
    lan = Lan(f"bypl{os.getpid() % 10000}x", "10.76.0.0/24", "fd76::/64")
    found = Site(lan, tmp_path)
    servers: list[Server] = []
    try:
        lan.up(1)
        servers += [EtcdServer(tmp_path / "etcd", found.address, found.enter)]
        servers += [ZooKeeperServer(tmp_path / "zookeeper", found.address, found.enter)]
        for server in servers:
            server.launch()
        found.urls = [
            f"{s}://{found.address}:{server.port}/site" for s, server in zip(("etcd", "zk"), servers, strict=True)
        ]
        yield found
    finally:
        for process in found.processes:
            process.kill()
            process.wait()
        for server in servers:
            server.kill()
        lan.down()


async def test_managers_publish_their_nodes_and_dead_ones_are_forgotten(site: Site, tmp_path: Path) -> None:
    """By the command alone: a node that gossips is listed; a kill ends a list with its lease, a stop at once."""
    authority, nodes = str(tmp_path / "ca.pem"), f"file://{tmp_path}/nodes"
    etcd, zk = site.urls
    ports = [free_port() for _ in range(5)]
    first = site.manager("m1", ports[0], "--token-listen", f"{site.address}:0", etcd)
    second, third = site.manager("m2", ports[1], zk), site.manager("m3", ports[2], nodes)
    await _appears(site, site.socket("m1"), first)
    token = (await site.beeyard("discovery-token", "--socket", site.socket("m1"), "--ca", authority)).strip()
    assert token.startswith("token://")
    fourth = site.manager("m4", ports[3], "--discovery-options", f"kv.cacertfile={authority}", token)
    digest = real.host().pki.digest(Path(authority).read_bytes())
    member = ("w1", str(tmp_path), digest, str(ports[4]), f"{site.address}:{ports[0]}")
    site.start("w1", "tests.support.lone_member", *member)
    places = (f"m1={etcd}", f"m2={zk}", f"m3={nodes}", f"m4={token}")
    site.start("watcher", "tests.support.list_watcher", str(tmp_path / "seen"), *places, AUTHORITY=authority)

    def listed(seen: Mapping[str, Any], name: str) -> bool | None:
        """Whether a manager's list is there; None: nobody knows."""
        return any(owner.startswith(f"{name}-") for owner in seen[name]) if name in seen else None

    names = ("m1", "m2", "m3", "m4")
    await site.eventually(lambda seen: all(listed(seen, name) for name in names), START_S)
    node = f"{site.address}:{ports[4]}"
    await site.eventually(lambda seen: [node] in seen["m1"].values())
    assert await site.beeyard("list", etcd) == f"{node}\n"
    assert await site.beeyard("list", "--socket", site.socket("m1")) == f"{node}\n"
    fourth.send_signal(signal.SIGTERM)
    await site.eventually(lambda seen: listed(seen, "m4") is False)
    for process in (first, second, third):
        process.kill()
        process.wait()
    await trio.sleep(0.5)
    await site.eventually(lambda seen: all(listed(seen, name) for name in names[:3]), 0.0)
    await site.eventually(lambda seen: all(listed(seen, name) is False for name in names[:3]), EXPIRY_S)


async def _appears(site: Site, path: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while not os.path.exists(path):
        assert process.poll() is None, site.logs()
        assert time.monotonic() < deadline_s, site.logs()
        await trio.sleep(0.05)
