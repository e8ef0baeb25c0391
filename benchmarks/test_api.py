"""What a request to the API costs the manager, in CPU time of one process that also holds the (trivial) client.

python -m pytest benchmarks/test_api.py --benchmark-only
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
import trio.testing

from beeyard.core.model import StoredObject
from beeyard.core.states import TaskState
from beeyard.runtime.host import Connection
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import a_node, a_service, a_task

# Requests of one round; enough that starting the loop does not count.
N_REQUESTS = 500

# CPU time: a machine that does something else meanwhile does not spoil it.
pytestmark = pytest.mark.benchmark(timer=time.process_time, group="api")


def a_cluster() -> list[StoredObject]:
    """20 services of 10 tasks on 10 nodes."""
    nodes = [a_node(f"n{i}") for i in range(10)]
    services = [a_service(f"s{i}", name=f"web{i}", replicas=10) for i in range(20)]
    tasks = [
        a_task(f"t{i}-{slot}", service_id=f"s{i}", slot=slot, state=TaskState.RUNNING, node_id=f"n{slot % 10}")
        for i in range(20)
        for slot in range(1, 11)
    ]
    return [*nodes, *services, *tasks]


async def requests(raw: bytes, n_requests: int) -> None:
    """Send the same bytes again and again over one connection; the client only looks for the end of each reply."""
    async with an_api(*a_cluster()) as api:
        stream = await connect(api)
        for _ in range(n_requests):
            await stream.send_all(raw)
            await one_reply(stream)


async def connect(api: ApiWorld) -> trio.abc.Stream:
    ours, theirs = trio.testing.memory_stream_pair()
    assert api.host.net.accepted is not None
    await api.host.net.accepted.send(Connection(stream=theirs, remote="unix:"))
    return ours


async def one_reply(stream: trio.abc.Stream) -> None:
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += await stream.receive_some(1 << 20)
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20"), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    n_bytes = len(body)
    while n_bytes < length:
        n_bytes += len(await stream.receive_some(1 << 20))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\nuser-agent: Docker-Client/28.2.2 (linux)\r\n\r\n".encode()


@pytest.mark.parametrize(
    "path",
    ["/_ping", "/v1.50/services/web7", "/v1.50/services?status=true", "/v1.50/nodes", "/v1.50/tasks"],
    ids=["ping", "service", "20-services", "10-nodes", "200-tasks"],
)
def test_reads(benchmark: Any, path: str) -> None:
    """Requests a second of CPU over one in-memory connection."""
    raw = get(path)
    benchmark.pedantic(lambda: trio.run(requests, raw, N_REQUESTS), rounds=5, warmup_rounds=1)
    note_rate(benchmark)


def note_rate(benchmark: Any) -> None:
    """Keep the rate of the best round beside the times."""
    benchmark.extra_info["requests_per_cpu_s"] = round(N_REQUESTS / benchmark.stats.stats.min)


def test_service_create(benchmark: Any) -> None:
    """Services made a second of CPU by one client, each with a commit to a database in memory."""
    bodies = [
        (
            f'{{"Name":"x{i}","TaskTemplate":{{"ContainerSpec":{{"Image":"host:latest","Args":["sleep","1"]}},'
            '"Resources":{"Limits":{},"Reservations":{}},"Placement":{},"ForceUpdate":0},'
            '"Mode":{"Replicated":{"Replicas":0}},"EndpointSpec":{"Mode":"vip"}}'
        ).encode()
        for i in range(N_REQUESTS)
    ]

    async def create() -> None:
        async with an_api(*a_cluster()) as api:
            stream = await connect(api)
            for body in bodies:
                head = f"POST /v1.50/services/create HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
                await stream.send_all(head.encode() + body)
                await one_reply(stream)

    benchmark.pedantic(lambda: trio.run(create), rounds=5, warmup_rounds=1)
    note_rate(benchmark)
