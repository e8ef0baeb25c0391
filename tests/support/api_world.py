"""The manager's API over in-memory connections, with a real store and without the rest of a manager."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import trio
import trio.testing

from beeyard.core.model import Cluster, StoredObject
from beeyard.manager.api import serve
from beeyard.manager.api.http_server import HttpLimits
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Connection
from tests.support.api_status import PlainStatus
from tests.support.dispatch_world import MemoryHost
from tests.support.http_client import HttpClient, HttpReply
from tests.support.memory_database import MemoryDatabase

MANAGER_NODE_ID = "n1"
CLUSTER = Cluster(
    id="cluster1",
    ca_certificate_pem=b"-----BEGIN CERTIFICATE-----\n",
    worker_secret="w" * 25,
    manager_secret="m" * 25,
    manager_node_id=MANAGER_NODE_ID,
)


class ApiHost(MemoryHost):
    """The part of `Host` that the API uses."""

    def resources(self) -> tuple[int, int]:
        return 4 * 10**9, 8 << 30

    def platform(self) -> tuple[str, str]:
        return "x86_64", "linux"


class ApiWorld:
    """A served API and its store."""

    def __init__(self, host: ApiHost, store: Store, status: PlainStatus, database: MemoryDatabase) -> None:
        self.host = host
        self.store = store
        self.status = status
        self.database = database

    async def connect(self) -> HttpClient:
        """A new connection."""
        ours, theirs = trio.testing.memory_stream_pair()
        assert self.host.net.accepted is not None
        await self.host.net.accepted.send(Connection(stream=theirs, remote="unix:", peer_uid=0))
        return HttpClient(ours)

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> HttpReply:
        """One request on a connection of its own; dictionaries in the query are sent as JSON."""
        text = urlencode({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in query.items()})
        client = await self.connect()
        data = b"" if body is None else json.dumps(body).encode()
        headers = (("content-type", "application/json"),) if data else ()
        reply = await client.request(method, f"{path}?{text}" if text else path, data, headers)
        await client.stream.aclose()
        return reply

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON of a GET that must work."""
        reply = await self.call("GET", path, **query)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json

    async def put(self, *objects: StoredObject) -> None:
        """Store objects as they are, whether new or not."""

        def build(tx: Transaction) -> None:
            for obj in objects:
                if tx.get(type(obj), obj.id) is None:
                    tx.create(obj)
                else:
                    tx.update(obj)

        await self.store.commit(build)


@asynccontextmanager
async def an_api(*objects: StoredObject, limits: HttpLimits | None = None) -> AsyncIterator[ApiWorld]:
    """A running API over a store that holds the cluster's record and these objects."""
    database = MemoryDatabase()
    host = ApiHost(database)
    store = await Store.open(host, "/state/store.db")  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        status = PlainStatus(store)
        world = ApiWorld(host, store, status, database)
        await world.put(CLUSTER, *objects)

        async def run(task_status: trio.TaskStatus[str]) -> None:
            await serve(host, store, status, "/run/api.sock", limits=limits, task_status=task_status)  # type: ignore[arg-type]

        assert await nursery.start(run) == "unix:///run/api.sock"
        yield world
        nursery.cancel_scope.cancel()
