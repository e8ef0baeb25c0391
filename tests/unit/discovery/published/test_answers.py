"""Servers that answer with nonsense: an error about them, and nothing else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from beeyard.core.errors import PeerError
from beeyard.discovery.published.consul import ConsulBackend
from beeyard.discovery.published.etcd import EtcdBackend
from beeyard.discovery.published.token import TokenBackend
from beeyard.discovery.published.url import parse_url
from beeyard.runtime.host_lists import HttpAnswer, Lines

NONSENSE = (
    b"",
    b"<html>",
    b"null",
    b"7",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"responses":null,"header":{"revision":"1"}}',
    b'{"responses":[{},{}],"header":{"revision":"1"}}',
    b'{"responses":[{"response_range":{}},{"response_range":{"kvs":[{"key":"%%%"}]}}],"header":{"revision":"1"}}',
    b'{"responses":[{"response_range":{}},{"response_range":{}}],"header":{"revision":"x"}}',
    b'{"ID":"x"}',
    b'{"ID":[]}',
    b'[{"Key":7,"Value":null}]',
    b'[{"Key":"a","Value":"%"}]',
    b'{"lists":[],"version":1}',
    b'{"lists":{"m":7},"version":1}',
    b'{"lists":{},"version":"x"}',
    b'{"error":7,"code":"x"}',
)


class Answering:
    """`HttpClient` that always gets this."""

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = HttpAnswer(status, body, {"x-consul-index": "7"})

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        return self._answer

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[Lines]:
        raise PeerError("no lines")
        yield

    async def aclose(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("body", NONSENSE, ids=lambda body: body[:20].decode("latin-1"))
async def test_nonsense_is_an_error_of_the_server(status: int, body: bytes) -> None:
    """Whatever is asked of it."""
    for kind, make in (("etcd://a", EtcdBackend), ("consul://a", ConsulBackend), ("token://a/b", TokenBackend)):
        backend = make(parse_url(kind), Answering(status, body))
        with contextlib.suppress(PeerError):
            found = await backend.read()
            assert all(isinstance(entry, str) for entries in found.values() for entry in entries)
        with contextlib.suppress(PeerError):
            lease = await backend.lease("m1", 30.0)
            await lease.put(["a:1"])
            await lease.renew()
            await lease.revoke()


async def test_what_others_put_under_a_key_is_read_as_far_as_it_can_be() -> None:
    """Also when its name is no text."""
    key = "L2JlZXlhcmQvZG9ja2VyL3N3YXJtL25vZGVzL/8="  # /beeyard/docker/swarm/nodes/ and a byte that is no UTF-8
    kvs = [{"key": key, "value": "YToxCm5vbnNlbnNlCg=="}]
    ranges = [{"response_range": {"kvs": kvs}}, {"response_range": {}}]
    body = json.dumps({"responses": ranges, "header": {"revision": "1"}}).encode()
    backend = EtcdBackend(parse_url("etcd://a"), Answering(200, body))
    assert await backend.read() == {"\ufffd": ("a:1",)}
