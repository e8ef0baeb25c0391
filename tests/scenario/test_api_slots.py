"""Labels that pin addresses and MAC addresses to slots, over the API: each rule has its sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.model import Service, UpdateConfig, UpdateOrder
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import (
    a_config_network,
    a_link,
    a_network,
    a_network_from,
    a_node,
    a_service,
    a_task_spec,
    an_ipam,
)

IPAM = [an_ipam("10.1.0.0/24", gateway="10.1.0.1", aux={"nas": "10.1.0.5"}), an_ipam("fd00::/64")]
NETWORKS = [
    a_network("lan", name="lan", ipam=IPAM),
    a_network("wan", name="wan", ipam=[an_ipam("10.2.0.0/24")]),
    a_network("ip", name="ip", driver="ipvlan", ipam=[an_ipam("10.3.0.0/24")]),
    a_network("alone", name="alone", ipam=[an_ipam("10.4.0.0/24")], options={"macvlan_mode": "passthru"}),
    msgspec.structs.replace(a_network("corp", name="corp", ipam=[]), ipam_driver="corp-ipam"),
]
FENCE = {"beeyard.on-isolation": "fence"}
START_FIRST = UpdateConfig(order=UpdateOrder.START_FIRST)


def db(addresses: str, *network_ids: str, name: str = "db", **more: Any) -> Service:
    """What is stored; the API's body is made of it."""
    labels = more.pop("labels", {**FENCE, "beeyard.addresses": addresses})
    task = a_task_spec(network_ids=network_ids or ("lan",), args=["true"])
    return a_service(name, name=name, task=task, labels=labels, **more)


async def create(api: ApiWorld, service: Service) -> tuple[int, str]:
    """Status and message of `docker service create`."""
    spec = service.spec
    body: dict[str, Any] = {
        "Name": spec.name,
        "Labels": spec.labels,
        "Mode": {"Replicated": {"Replicas": spec.replicas}},
        "TaskTemplate": {
            "ContainerSpec": {"Image": "host", "Args": list(spec.task.args)},
            "Networks": [{"Target": network_id} for network_id in spec.task.network_ids],
        },
    }
    if spec.update is not None:
        body["UpdateConfig"] = {"Order": spec.update.order.value}
    reply = await api.call("POST", "/services/create", body)
    return reply.status, reply.message if reply.status != 201 else ""


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (db("10.1.0.300"), "'10.1.0.300' is not an address or a range"),
        (
            db("", labels={"beeyard.addresses": "10.1.0.9"}),
            "it needs --label beeyard.on-isolation=fence too: else a slot whose node is lost waits for a day",
        ),
        (
            db("10.1.0.9", update=START_FIRST),
            "what belongs to a slot has one task at a time, which --update-order start-first is against: use stop-first",
        ),
        (
            db("10.1.0.9", replicas=2),
            "it has addresses for 1 replicas, and 2 are asked for: add some to the label first",
        ),
        (db("10.1.0.8-10.1.0.9,fd00::9", replicas=2), "it has addresses for 1 replicas"),
        (db("10.1.0.9", "lan", "wan"), "it needs exactly one network with addresses, and has lan, wan"),
        (db("10.1.0.9", "host"), "it needs exactly one network with addresses, and has none"),
        (db("10.1.0.9", "corp"), "network corp has the IPAM driver corp-ipam, which chooses by itself"),
        (db("10.9.0.9"), "10.9.0.9 is in no subnet of one pool of lan"),
        (db("10.1.0.1"), "10.1.0.1 is the gateway of network lan"),
        (db("10.1.0.5"), "10.1.0.5 is the auxiliary address nas of network lan"),
        (db("10.1.0.255"), "10.1.0.255 is the network or broadcast address of 10.1.0.0/24"),
        (db("10.1.0.30"), "10.1.0.30 is an address of node n1 itself"),
        (db("10.1.0.19-10.1.0.20"), "10.1.0.20 is pinned by service other"),
    ],
)
async def test_pins_that_cannot_be_given_are_refused(service: Service, words: str) -> None:
    node = a_node("n1", links=[a_link("eth0", "10.1.0.30/24")])
    async with an_api(*NETWORKS, node, db("10.1.0.20-10.1.0.22", name="other")) as api:
        status, message = await create(api, service)
        assert (status, f"invalid label beeyard.addresses: {words}" in message) == (400, True), message
        assert await create(api, db("10.1.0.10-10.1.0.12,fd00::1-fd00::3", replicas=3)) == (201, "")


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (db("", labels={"beeyard.mac": "per-slot"}, update=START_FIRST), "which --update-order start-first is against"),
        (
            db("", "ip", labels={"beeyard.mac": "per-slot"}),
            "per-slot is not for network ip: with ipvlan a link has its parent's MAC address",
        ),
        (
            db("", "alone", labels={"beeyard.mac": "per-slot"}),
            "per-slot is not for network alone: with macvlan in mode passthru a link has its parent's MAC address",
        ),
        (
            db("", "corp", labels={"beeyard.mac": "per-slot"}),
            "per-slot is not for network corp: its IPAM plugin is told a MAC address of the task",
        ),
        (db("", "host", labels={"beeyard.mac": "per-slot"}), "per-slot needs a macvlan network: give --network"),
    ],
)
async def test_slots_that_cannot_have_a_mac_address_are_refused(service: Service, words: str) -> None:
    async with an_api(*NETWORKS) as api:
        status, message = await create(api, service)
        assert (status, words in message) == (400, True), message
        assert await create(api, db("", labels={"beeyard.mac": "per-slot"})) == (201, "")


async def test_scaling_beyond_the_addresses_is_refused_by_name() -> None:
    """Nothing else is checked again: what was right when it was given does not keep a service from being scaled."""
    async with an_api(*NETWORKS, db("10.1.0.10-10.1.0.11")) as api:
        await api.put(a_node("n1", links=[a_link("eth0", "10.1.0.10/24")]))
        for replicas, status in ((2, 200), (3, 400)):
            (service,) = await api.get("/services")
            service["Spec"]["Mode"]["Replicated"]["Replicas"] = replicas
            reply = await api.call("POST", "/services/db/update", service["Spec"], version=service["Version"]["Index"])
            assert reply.status == status, reply.message
        assert "it has addresses for 2 replicas, and 3 are asked for" in reply.message


async def test_networks_respect_what_is_pinned() -> None:
    """No pool takes a pinned address for its gateway, and the only pool that has it stays."""
    pools = [a_config_network(f"p{n}", f"pool-{n}", config="c", ipam=[an_ipam(f"10.{n}.0.0/24")]) for n in (5, 6)]
    async with an_api(*pools, a_network_from("c", "any", name="any"), db("10.5.0.9", "any")) as api:
        gateway = {"Name": "x", "Driver": "macvlan", "Options": {"parent": "eth0"}}
        gateway["IPAM"] = {"Config": [{"Subnet": "10.5.0.0/24", "Gateway": "10.5.0.9"}]}
        reply = await api.call("POST", "/networks/create", gateway)
        assert reply.message == "invalid gateway: 10.5.0.9 is pinned by service db"
        reply = await api.call("DELETE", "/networks/pool-5")
        assert reply.message == (
            "network pool-5 is in use by service db: 10.5.0.9 is in no subnet of one pool of pool-6"
        )
        change = {"IPAM": {"Config": [{"Subnet": "10.7.0.0/24"}]}}
        reply = await api.call("POST", "/networks/pool-5/update", change, version=pool_version(api))
        assert reply.message == (
            "network pool-5 cannot be changed so: service db: 10.5.0.9 is in no subnet of one pool of pool-5, pool-6"
        )
        assert (await api.call("DELETE", "/networks/pool-6")).status == 204


def pool_version(api: ApiWorld) -> int:
    return api.store.networks["p5"].version
