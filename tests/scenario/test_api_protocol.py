"""The API as a protocol: negotiation, errors, and what is answered for things that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.api_world import an_api
from tests.support.builders import a_node, a_service

CAPTURES = json.loads((Path(__file__).parents[1] / "data/docker_captures.json").read_text())


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("path", ["/_ping", "/v1.50/_ping", "/v1.24/_ping"])
async def test_a_ping_carries_every_header_of_dockers_own(method: str, path: str) -> None:
    async with an_api() as api:
        reply = await api.call(method, path)
        assert (reply.status, reply.body) == (200, b"" if method == "HEAD" else b"OK")
        ours_differ = {"Server", "Content-Length"}
        for name, value in CAPTURES["ping_headers"].items():
            assert name in ours_differ or reply.headers[name.lower()] == value, name


async def test_paths_work_with_and_without_a_version() -> None:
    async with an_api() as api:
        for path in ("/version", "/v1.24/version", "/v1.50/version"):
            assert (await api.get(path))["ApiVersion"] == "1.50"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1.99/nodes", "client version 1.99 is too new. Maximum supported API version is 1.50"),
        ("/v1.12/nodes", "client version 1.12 is too old. Minimum supported API version is 1.24"),
    ],
)
async def test_versions_outside_the_range_are_refused(path: str, words: str) -> None:
    async with an_api() as api:
        reply = await api.call("GET", path)
        assert reply.status == 400
        assert words in reply.message


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nosuch"), ("GET", "/"), ("POST", "/nodes"), ("PUT", "/v1.50/services/x"), ("GET", "//")],
)
async def test_what_docker_does_not_know_either_is_not_found(method: str, path: str) -> None:
    async with an_api() as api:
        reply = await api.call(method, path)
        assert (reply.status, reply.message) == (404, "page not found")


NOT_THERE = [
    ("GET", "/containers/json", "docker containers are not supported by beeyard"),
    ("POST", "/containers/create", "docker containers are not supported by beeyard"),
    ("GET", "/images/json", "docker images are not supported by beeyard"),
    ("GET", "/secrets", "docker secrets are not supported by beeyard"),
    ("POST", "/configs/create", "docker configs are not supported by beeyard"),
    ("GET", "/plugins", "docker plugins are not supported by beeyard"),
    ("GET", "/events", "docker events are not supported by beeyard"),
    ("GET", "/system/df", "docker system df is not supported by beeyard"),
    ("POST", "/build", "docker build is not supported by beeyard"),
    ("POST", "/auth", "docker login is not supported by beeyard"),
    ("GET", "/services/web/logs", "docker service logs are not supported by beeyard"),
    ("POST", "/networks/prune", "docker network prune is not supported by beeyard"),
    ("POST", "/networks/host/connect", "docker network connect"),
    ("POST", "/swarm/leave", "docker swarm leave"),
    ("GET", "/swarm/unlockkey", "autolock"),
]


@pytest.mark.parametrize(("method", "path", "words"), NOT_THERE, ids=[path for _, path, _ in NOT_THERE])
async def test_what_docker_has_and_beeyard_has_not_says_so_by_name(method: str, path: str, words: str) -> None:
    async with an_api(a_service(name="web")) as api:
        reply = await api.call(method, path)
        assert reply.status == 501
        assert reply.message.startswith(words) or words in reply.message


@pytest.mark.parametrize(
    "path",
    [
        "/containers/x/json",
        "/images/x/json",
        "/images/registry:5000/x/y/json",
        "/volumes/x",
        "/plugins/x/json",
        "/secrets/x",
        "/configs/x",
        "/networks/x",
        "/services/x",
        "/tasks/x",
        "/nodes/x",
    ],
)
async def test_every_look_up_of_docker_inspect_ends_in_a_404(path: str) -> None:
    """Anything else would keep the command from asking for the next kind."""
    async with an_api() as api:
        reply = await api.call("GET", path)
        assert reply.status == 404
        assert reply.message


BAD_BODIES = [
    (b"x", "invalid JSON"),
    (b"", "invalid JSON: got EOF"),
    (b"{", "invalid JSON"),
    (b"[]", "JSON object"),
    (b'{"Name":"\xff"}', "invalid JSON"),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
    (b'{"a":' * 100 + b"1" + b"}" * 100, "nested too deeply"),
    (b"[" * 100_000, "invalid JSON"),
]


@pytest.mark.parametrize(("body", "words"), BAD_BODIES, ids=[repr(b[:20]) for b, _ in BAD_BODIES])
async def test_a_body_that_is_no_good_json_is_refused(body: bytes, words: str) -> None:
    async with an_api() as api:
        client = await api.connect()
        reply = await client.request("POST", "/services/create", body, (("content-type", "application/json"),))
        assert reply.status == 400
        assert words in reply.message
        assert (await client.request("GET", "/_ping")).status == 200


async def test_another_content_type_is_refused_in_dockers_words() -> None:
    async with an_api() as api:
        client = await api.connect()
        reply = await client.request("POST", "/services/create", b"{}", (("content-type", "text/plain"),))
        assert reply.message == "unsupported Content-Type header (text/plain): must be 'application/json'"
        reply = await client.request(
            "POST", "/services/create", b"{}", (("content-type", "application/json; charset=utf-8"),)
        )
        assert "mismatched Runtime" in reply.message


async def test_a_bug_of_ours_ends_one_request_alone(capsys: pytest.CaptureFixture[str]) -> None:
    async with an_api(a_node("n1")) as api:
        client = await api.connect()
        api.status.warnings = 1  # type: ignore[assignment]
        reply = await client.request("GET", "/info")
        assert (reply.status, reply.message) == (500, "internal error of the manager; its log has the details")
        api.status.warnings = []
        assert (await client.request("GET", "/info")).status == 200
    assert "request failed" in capsys.readouterr().out


async def test_a_database_that_refuses_is_told_to_the_client_and_leaves_nothing() -> None:
    async with an_api() as api:
        api.database.fail_when = lambda _n: True
        body = {"Name": "web", "TaskTemplate": {"ContainerSpec": {"Image": "host", "Args": ["true"]}}}
        reply = await api.call("POST", "/services/create", body)
        assert (reply.status, reply.message) == (503, "cannot write memory: no space left")
        assert await api.get("/services") == []


async def test_info_has_what_the_command_needs_of_the_swarm() -> None:
    async with an_api(a_node("n1"), a_node("n2")) as api:
        api.status.warnings = ["replacing tasks waits: 2 of 2 nodes are down"]
        info = await api.get("/info")
        assert info["Warnings"] == ["replacing tasks waits: 2 of 2 nodes are down"]
        swarm = info["Swarm"]
        assert (swarm["NodeID"], swarm["LocalNodeState"], swarm["ControlAvailable"]) == ("n1", "active", True)
        assert (swarm["Nodes"], swarm["Managers"], swarm["NodeAddr"]) == (2, 1, "10.99.0.1")


@pytest.mark.parametrize(
    ("address", "shown", "host"),
    [
        ("tcp://10.0.0.7:2377", "10.0.0.7:2377", "10.0.0.7"),
        ("10.0.0.7:2377", "10.0.0.7:2377", "10.0.0.7"),
        ("tcp://[fd00::7]:2377", "[fd00::7]:2377", "fd00::7"),
    ],
)
async def test_the_managers_address_is_shown_as_docker_writes_it(address: str, shown: str, host: str) -> None:
    async with an_api(a_node("n1")) as api:
        api.status.address = address
        swarm = (await api.get("/info"))["Swarm"]
        assert (swarm["RemoteManagers"][0]["Addr"], swarm["NodeAddr"]) == (shown, host)
        assert (await api.get("/nodes/n1"))["ManagerStatus"]["Addr"] == shown
