"""Networks over the API: pools by configuration, and no removal of what is in use."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.grant import AddressGrant
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.states import TaskState
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import a_network, a_service, a_task, a_task_spec


def a_config(name: str, ip_range: str, rack: str) -> dict[str, Any]:
    """What the docker command sends for a pool of one rack."""
    ipam = {"Subnet": "10.77.0.0/24", "IPRange": ip_range, "Gateway": "10.77.0.1"}
    return {
        "Name": name,
        "Driver": "bridge",
        "ConfigOnly": True,
        "ConfigFrom": None,
        "IPAM": {"Driver": "default", "Options": {}, "Config": [ipam]},
        "Options": {"parent": "eth0"},
        "Labels": {"beeyard.config": "racks", "beeyard.nodes": f"node.labels.rack=={rack}"},
    }


LAN = {"Name": "lan", "Driver": "macvlan", "Scope": "swarm", "ConfigFrom": {"Network": "racks"}}


async def create(api: ApiWorld, body: dict[str, Any]) -> str:
    reply = await api.call("POST", "/networks/create", body)
    assert reply.status == 201, reply.body
    assert reply.json["Warning"] == ""
    network_id: str = reply.json["Id"]
    return network_id


async def two_racks(api: ApiWorld) -> str:
    """A network with a pool for each of two racks; its id."""
    await create(api, a_config("lan-r1", "10.77.0.64/26", "r1"))
    await create(api, a_config("lan-r2", "10.77.0.128/26", "r2"))
    return await create(api, LAN)


def a_task_on(network_id: str, pool_id: str, state: TaskState = TaskState.RUNNING) -> Any:
    grant = AddressGrant(
        id="g1",
        hook="address",
        network_id=network_id,
        network_name="lan",
        pool_id=pool_id,
        pool_name="lan-r1",
        segment="default",
        driver="macvlan",
        addresses=("10.77.0.64/24",),
    )
    return msgspec.structs.replace(a_task("t1", state=state, node_id="n1"), grants=(grant,))


async def test_a_network_shows_its_pools_and_the_addresses_of_its_tasks() -> None:
    async with an_api() as api:
        network_id = await two_racks(api)
        pool_id = (await api.get("/networks/lan-r1"))["Id"]
        await api.put(a_task_on(network_id, pool_id))
        shown = await api.get("/networks/lan", scope="swarm")
        assert shown["Containers"]["t1"]["IPv4Address"] == "10.77.0.64/24"
        pools = shown["Status"]["IPAM"]["Pools"]
        assert {name: (p["Total"], p["Used"], p["Free"]) for name, p in pools.items()} == {
            "lan-r1": (64, 1, 63),
            "lan-r2": (64, 0, 64),
        }
        config = await api.get("/networks/lan-r1")
        assert list(config["Containers"]) == ["t1"]
        assert config["Status"]["IPAM"]["Pools"]["lan-r1"]["Used"] == 1


async def test_the_predefined_network_is_there_and_stays() -> None:
    async with an_api() as api:
        for wanted in ("host", HOST_NETWORK_ID):
            shown = await api.get(f"/networks/{wanted}", scope="swarm")
            assert (shown["Id"], shown["Driver"], shown["Scope"]) == (HOST_NETWORK_ID, "host", "swarm")
        reply = await api.call("DELETE", "/networks/host")
        assert (reply.status, reply.message) == (403, "host is a pre-defined network and cannot be removed")
        for name in ("host", "none", "bridge"):
            reply = await api.call("POST", "/networks/create", {**LAN, "Name": name})
            assert reply.status == 403


async def test_a_look_up_in_another_scope_finds_nothing() -> None:
    async with an_api(a_network("net1", name="lan")) as api:
        assert (await api.call("GET", "/networks/lan", scope="local")).status == 404


async def test_names_are_given_once() -> None:
    async with an_api() as api:
        await two_racks(api)
        reply = await api.call("POST", "/networks/create", LAN)
        assert (reply.status, reply.message) == (409, "network with name lan already exists")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"Name": "x", "Driver": "overlay"}, 501, "network driver overlay is not supported by beeyard"),
        ({"Name": "x", "Driver": "ipvlan"}, 400, "-o parent=INTERFACE"),
        ({"Name": "x"}, 501, "network driver bridge"),
        ({**LAN, "ConfigFrom": {"Network": "nosuch"}}, 400, "no --config-only network is named nosuch"),
        ({**LAN, "Options": {"parent": "eth0"}}, 400, "-o cannot be given together with --config-from"),
        ({**LAN, "Scope": "local"}, 501, "network scope local"),
        ({**LAN, "Name": ""}, 400, "name"),
        ({**LAN, "Name": "a b"}, 400, "invalid name: 'a b'"),
        ({**LAN, "Name": "ingress"}, 403, "predefined ingress network"),
        ({**LAN, "name": "other"}, 400, "invalid name: the same field is given as Name too"),
        ({**LAN, "Labels": {"": "x"}}, 400, "invalid Labels: a name in it is empty"),
    ],
)
async def test_a_network_that_cannot_work_is_refused(body: dict[str, Any], status: int, words: str) -> None:
    async with an_api() as api:
        reply = await api.call("POST", "/networks/create", body)
        assert reply.status == status
        assert words in reply.message
        assert not api.store.networks


async def test_a_gateway_that_is_a_tasks_address_is_refused_and_one_in_another_range_is_told() -> None:
    async with an_api() as api:
        pool_id = await create(api, a_config("lan-r1", "10.77.0.64/26", "r1"))
        await api.put(a_task_on("net1", pool_id))
        other = a_config("lan-r2", "10.77.0.128/26", "r2")
        other["IPAM"]["Config"][0]["Gateway"] = "10.77.0.64"
        reply = await api.call("POST", "/networks/create", other)
        assert reply.status == 400
        assert reply.message == "invalid gateway: 10.77.0.64 is the address of task web.1 on network lan"
        other["IPAM"]["Config"][0]["Gateway"] = "10.77.0.70"
        reply = await api.call("POST", "/networks/create", other)
        assert reply.status == 201
        assert "gateway 10.77.0.70 of lan-r2 lies in the range of lan-r1" in reply.json["Warning"]
        wide = {"IPAM": {"Config": [{"Subnet": "10.77.0.0/23", "IPRange": "10.77.1.0/26"}]}}
        told = await change(api, "lan-r2", wide)
        assert told[0] == 200
        assert told[1].startswith("no gateway is given for 10.77.0.0/23 of lan-r2: its tasks have no default route; ")
        assert "subnet 10.77.0.0/23 of lan-r2 overlaps 10.77.0.0/24 of lan-r1" in told[1]


async def test_a_network_in_use_is_not_removed() -> None:
    """By a service, by a task that still holds an address, or by the network that draws from it."""
    async with an_api() as api:
        network_id = await two_racks(api)
        pool_id = (await api.get("/networks/lan-r1"))["Id"]
        await api.put(a_service("s1", name="web", task=a_task_spec(network_ids=[network_id])))
        await api.put(a_task_on(network_id, pool_id))
        reply = await api.call("DELETE", "/networks/lan")
        assert (reply.status, reply.message) == (400, "network lan is in use by service web")
        assert (await api.call("DELETE", "/services/web")).status == 200
        reply = await api.call("DELETE", "/networks/lan")
        assert "in use by task web.1 (t1), which still holds an address" in reply.message
        # One of several pools may go, and its task keeps the address to its end.
        assert (await api.call("DELETE", "/networks/lan-r1")).status == 204
        reply = await api.call("DELETE", "/networks/lan-r2")
        assert reply.message == (
            "network lan-r2 is in use by network lan, which has no other pool: "
            "create another with --label beeyard.config=racks first, or remove lan"
        )
        assert (await api.get("/networks/lan"))["Containers"].keys() == {"t1"}
        await api.put(a_task_on(network_id, pool_id, TaskState.SHUTDOWN))
        assert (await api.call("DELETE", "/networks/lan")).status == 204
        assert (await api.call("DELETE", "/networks/lan-r2")).status == 204
        assert not api.store.networks


async def change(api: ApiWorld, name: str, body: dict[str, Any], version: int | None = None) -> tuple[int, str]:
    """Status, and the message or the warning."""
    seen = (await api.get(f"/networks/{name}"))["Version"]["Index"] if version is None else version
    reply = await api.call("POST", f"/networks/{name}/update", body, version=seen)
    return reply.status, reply.json["Warning"] if reply.status == 200 else reply.message


def an_ipam_body(ip_range: str, **more: Any) -> dict[str, Any]:
    return {"IPAM": {"Config": [{"Subnet": "10.77.0.0/24", "IPRange": ip_range, "Gateway": "10.77.0.1", **more}]}}


async def test_a_pool_is_changed_in_place() -> None:
    """Its range, gateway, auxiliary addresses and labels; what is not given stays; the version says what was seen."""
    async with an_api() as api:
        network_id = await two_racks(api)
        pool_id = (await api.get("/networks/lan-r1"))["Id"]
        await api.put(a_task_on(network_id, pool_id))
        body = an_ipam_body("10.77.0.96/27", AuxiliaryAddresses={"nas": "10.77.0.100"})
        assert await change(api, "lan-r1", body) == (
            200,
            "1 task keeps addresses outside of the new range to the end; "
            "1 task keeps the former prefix length or gateway to the end",
        )
        shown = await api.get("/networks/lan-r1")
        assert shown["IPAM"]["Config"] == body["IPAM"]["Config"]
        assert shown["Labels"]["beeyard.nodes"] == "node.labels.rack==r1"
        usage = shown["Status"]["IPAM"]["Pools"]["lan-r1"]
        assert (usage["Total"], usage["Used"], usage["Outside"]) == (31, 0, 1)

        labels = {"beeyard.config": "racks", "beeyard.nodes": "node.labels.rack==r9"}
        assert await change(api, "lan-r1", {"Labels": labels}) == (200, "")
        assert (await api.get("/networks/lan-r1"))["Labels"] == labels
        assert (await api.get("/networks/lan-r1"))["IPAM"]["Config"] == body["IPAM"]["Config"]
        grown = {"IPAM": {"Config": [{"Subnet": "10.77.0.0/16", "IPRange": "10.77.1.0/24"}]}}
        status, warning = await change(api, "lan-r1", grown)
        assert (status, "1 task keeps the former prefix length" in warning) == (200, True)


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("lan-r1", an_ipam_body("10.77.1.0/26"), 400, "invalid ip-range: 10.77.1.0/26 is not within the subnet"),
        (
            "lan-r1",
            {"IPAM": {"Config": [{"Subnet": "10.78.0.0/24"}]}},
            400,
            "invalid subnet: task web.1 has 10.77.0.64, which is not in 10.78.0.0/24",
        ),
        (
            "lan-r1",
            {"IPAM": {"Config": [{"Subnet": "10.77.0.0/24", "Gateway": "10.77.0.64"}]}},
            400,
            "invalid gateway: 10.77.0.64 is the address of task web.1 on network lan",
        ),
        (
            "lan-r2",
            an_ipam_body("10.77.0.128/26", AuxiliaryAddresses={"nas": "10.77.0.64"}),
            400,
            "invalid aux-address nas: 10.77.0.64 is the address of task web.1 on network lan",
        ),
        (
            "lan-r1",
            {"Labels": {"beeyard.config": "racks", "beeyard.segment": "b"}},
            400,
            "invalid label beeyard.segment: task web.1 has an address of it: only an unused pool can move",
        ),
        ("lan-r1", {"Labels": {"beeyard.rack": "r1"}}, 400, "no label of a network has this name"),
        ("lan-r1", {"Options": {"parent": "eth1"}}, 501, "changing the options of a network"),
        ("lan-r1", {"IPAM": {"Driver": "null"}}, 501, "changing the IPAM driver of a network"),
        ("lan", an_ipam_body("10.77.0.64/26"), 400, "cannot be given together with --config-from racks"),
        ("host", {"Labels": {}}, 501, "changing the predefined network host"),
    ],
)
async def test_a_change_that_would_strand_somebody_is_refused(
    name: str, body: dict[str, Any], status: int, words: str
) -> None:
    async with an_api() as api:
        network_id = await two_racks(api)
        await api.put(a_task_on(network_id, (await api.get("/networks/lan-r1"))["Id"]))
        found = await change(api, name, body)
        assert (found[0], words in found[1]) == (status, True), found


async def test_a_change_of_what_was_not_seen_is_refused() -> None:
    async with an_api() as api:
        await two_racks(api)
        status, message = await change(api, "lan-r1", {"Labels": {}}, version=1)
        assert (status, "update out of sequence" in message) == (500, True), message
        assert (await api.call("POST", "/networks/lan-r1/update", {"Labels": {}})).status == 400


async def test_the_last_pool_of_a_network_keeps_its_label() -> None:
    async with an_api() as api:
        await two_racks(api)
        assert await change(api, "lan-r1", {"Labels": {}}) == (200, "")
        assert await change(api, "lan-r2", {"Labels": {}}) == (
            400,
            "label beeyard.config of network lan-r2 cannot be changed: network lan draws from it and has no other pool",
        )


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["host", "lan-r1", "lan-r2", "lan"]),
        ({"name": ["r1"]}, ["lan-r1"]),
        ({"driver": ["macvlan"]}, ["lan"]),
        ({"type": ["builtin"]}, ["host"]),
        ({"type": ["custom"]}, ["lan-r1", "lan-r2", "lan"]),
        ({"scope": ["local"]}, []),
        ({"label": {"beeyard.config=racks": True}}, ["lan-r1", "lan-r2"]),
        ({"dangling": ["true"]}, ["lan-r1", "lan-r2", "lan"]),
    ],
)
async def test_networks_are_filtered(filters: Any, names: list[str]) -> None:
    async with an_api() as api:
        await two_racks(api)
        assert [network["Name"] for network in await api.get("/networks", filters=filters)] == names
