"""What links of tasks do to each other on the nodes' parents, and several networks beside each other."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import Network, Task
from beeyard.core.states import NodeState, TaskState
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
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState
KINDS = ("macvlan", "ipvlan", "vlan")
MAC = a_network("mac", name="mac", ipam=[an_ipam("10.1.0.0/24")])
IP = a_network("ip", name="ip", driver="ipvlan", ipam=[an_ipam("10.2.0.0/24")])
L3 = a_network("l3", name="l3", driver="ipvlan", ipam=[an_ipam("10.3.0.0/24")], options={"ipvlan_mode": "l3"})
ALONE = a_network("alone", name="alone", ipam=[an_ipam("10.4.0.0/24")], options={"macvlan_mode": "passthru"})


def on(*network_ids: str, replicas: int = 2, service_id: str = ""):  # type: ignore[no-untyped-def]
    name = service_id or "-".join(network_ids)
    return a_service(name, name=name, replicas=replicas, task=a_task_spec(network_ids=network_ids))


def grants_of(task: Task) -> list[AddressGrant]:
    return [grant for grant in task.grants if isinstance(grant, AddressGrant)]


def waiting(world: ManagerWorld, service_id: str) -> list[str]:
    return [t.status.err for t in world.tasks(live=True, service_id=service_id) if t.status.state == S.PENDING]


def kinds_by_parent(world: ManagerWorld) -> dict[tuple[str, str], set[str]]:
    """What sits on each parent of each node, by what tasks that hold room were granted."""
    found: dict[tuple[str, str], set[str]] = {}
    for task in world.store.tasks.values():
        for grant in grants_of(task) if task.holds_room else ():
            found.setdefault((task.node_id, grant.parent), set()).add(f"{grant.driver} {grant.mode}")
    return found


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (MAC, IP, "parent interface eth0 for network ip is used by macvlan on 2 nodes"),
        (IP, L3, "parent interface eth0 for network l3 is used by ipvlan in mode l2 on 2 nodes"),
        (MAC, ALONE, "parent interface eth0 for network alone is used by macvlan on 2 nodes"),
        (ALONE, MAC, "parent interface eth0 for network mac is used by macvlan in mode passthru on 2 nodes"),
    ],
)
async def test_links_that_exclude_each_other_never_meet(
    autojump_clock: object, first: Network, second: Network, sentence: str
) -> None:
    """The first has both nodes, the second waits, also after a restart, and goes on when the first is gone."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(first, second, *(a_node(n, link_kinds=KINDS) for n in ("n1", "n2")))
        await world.add(on(first.id))
        await trio.sleep(1)
        await world.add(on(second.id))
        await trio.sleep(2)
        assert len(world.running(first.id)) == 2
        assert waiting(world, second.id) == [f"no suitable node ({sentence})"] * 2
        assert all(len(kinds) == 1 for kinds in kinds_by_parent(world).values())
    async with manager_world(database) as world:
        await world.add(on(second.id, service_id="late"))
        await trio.sleep(2)
        assert waiting(world, "late") == [f"no suitable node ({sentence})"] * 2
        await world.remove_service(first.id)
        await trio.sleep(2)
        assert len(world.running(second.id)) + len(world.running("late")) == (2 if second is ALONE else 4)
        assert all(len(kinds) == 1 for kinds in kinds_by_parent(world).values())
        world.check_books()


async def test_tasks_of_one_batch_do_not_collide(autojump_clock: object) -> None:
    """Four services of one transaction, none of which has a task yet: no parent gets two kinds."""
    async with manager_world() as world:
        await world.add(MAC, IP, L3, ALONE, *(a_node(f"n{n}", link_kinds=KINDS) for n in range(4)))
        await world.add(*(on(network.id) for network in (MAC, IP, L3, ALONE)))
        await trio.sleep(2)
        assert len(kinds_by_parent(world)) == 4
        assert all(len(kinds) == 1 for kinds in kinds_by_parent(world).values())
        world.check_books()


async def test_passthru_has_its_parent_alone(autojump_clock: object) -> None:
    """One link on each node, whoever asks, and none where the agent sees links of others."""
    async with manager_world() as world:
        busy = a_node("n3", link_kinds=KINDS, links=[a_link("eth0", child_kind="macvlan")])
        await world.add(
            ALONE, a_node("n1", link_kinds=KINDS), a_node("n2", link_kinds=KINDS), busy, on("alone", replicas=4)
        )
        await trio.sleep(2)
        assert sorted(t.node_id for t in world.running("alone")) == ["n1", "n2"]
        assert (
            waiting(world, "alone")
            == [
                "no suitable node (parent interface eth0 for network alone is used by macvlan in mode passthru on 2 nodes; "
                "parent interface eth0 for network alone is used by macvlan on 1 node)"
            ]
            * 2
        )
        assert [grant.mac for task in world.running("alone") for grant in grants_of(task)] == ["", ""]


async def test_other_parents_of_the_node_are_used(autojump_clock: object) -> None:
    """A pool whose parent is taken gives way to the next; the grant says which parent it is."""
    pools = [a_config_network(f"p-{p}", f"on-{p}", config="c", parent=p, ipam=[an_ipam(f"10.5.{n}.0/24")])
             for n, p in enumerate(("eth0", "eth1"))]  # fmt: skip
    async with manager_world() as world:
        node = a_node("n1", link_kinds=KINDS, links=[a_link("eth0"), a_link("eth1")])
        await world.add(IP, *pools, a_network_from("c", "any", name="any"), node, on("ip", replicas=1))
        await trio.sleep(1)
        await world.add(on("any"))
        await trio.sleep(1)
        assert [grants_of(task)[0].parent for task in world.running("any")] == ["eth1", "eth1"]
        world.check_books()


async def test_vlan_parent_needs_its_base_or_itself(autojump_clock: object) -> None:
    """The agent makes the sub-interface, if its kernel can; an existing one is adopted."""
    vlan = a_network("vlan", name="vlan", parent="eth0.100")
    async with manager_world() as world:
        await world.add(vlan, on("vlan", replicas=4))
        await world.add(a_node("n1", link_kinds=KINDS))
        await world.add(a_node("n2", links=[a_link("eth1"), a_link("eth0.100")]))
        await world.add(a_node("n3"), a_node("n4", link_kinds=KINDS, links=[a_link("eth1")]))
        await trio.sleep(2)
        assert sorted(t.node_id for t in world.running("vlan")) == ["n1", "n1", "n2", "n2"]
        await world.set_node("n1", NodeState.DOWN)
        await world.set_node("n2", NodeState.DOWN)
        await trio.sleep(10)
        assert "missing plugin on 1 node: network driver vlan" in waiting(world, "vlan")[0]
        assert "missing parent interface eth0.100 for network vlan on 1 node" in waiting(world, "vlan")[0]


async def test_ipam_null_gives_links_without_addresses(autojump_clock: object) -> None:
    """As many as anybody asks for; what they hold is given back all the same."""
    null = msgspec.structs.replace(a_network("dhcp", name="dhcp", ipam=[]), ipam_driver="null")
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(null, MAC, a_node("n1"), on("dhcp", "mac", replicas=3), on("dhcp", replicas=300))
        await trio.sleep(3)
        assert len(world.running("dhcp")) == 300
        (bare, addressed) = grants_of(world.running("dhcp-mac")[0])
        assert (bare.addresses, bare.gateways, bare.mac, bare.driver, bare.parent) == ((), (), "", "macvlan", "eth0")
        assert len(addressed.addresses) == 1
        world.check_books()
    async with manager_world(database) as world:
        await world.remove_service("dhcp")
        await world.remove_service("dhcp-mac")
        await trio.sleep(2)
        assert not world.addresses()
        assert not world.ledger.grants()


async def test_one_task_in_many_networks_of_one_parent(autojump_clock: object) -> None:
    """Overlapping subnets on other segments, the same gateway, both families: each task has a place in each of them."""
    one = a_network("one", name="one", ipam=[an_ipam("10.6.0.0/30", gateway="10.6.0.1"), an_ipam("fd00::/64")])
    same = a_network("same", name="same", ipam=[an_ipam("10.6.0.0/24", "10.6.0.2/31", "10.6.0.1")], parent="eth0.6",
                     labels={"beeyard.segment": "site-b"})  # fmt: skip
    again = a_network("again", name="again", ipam=[an_ipam("10.6.0.0/24", "10.6.0.4/30", gateway="10.6.0.1")])
    async with manager_world() as world:
        await world.add(one, same, again, a_node("n1", link_kinds=KINDS), on("one", "same", "again", replicas=2))
        await trio.sleep(2)
        (task,) = world.running("one-same-again")
        found = {g.network_name: (g.addresses, g.gateways, g.segment, g.parent) for g in grants_of(task)}
        assert found == {
            "one": (("10.6.0.2/30", "fd00::1/64"), ("10.6.0.1",), "default", "eth0"),
            "same": (("10.6.0.2/24",), ("10.6.0.1",), "site-b", "eth0.6"),
            "again": (("10.6.0.4/24",), ("10.6.0.1",), "default", "eth0"),
        }
        assert len({grant.mac for grant in grants_of(task)}) == 3
        assert waiting(world, "one-same-again") == ["no suitable node (no address left in pool one on 1 node)"]


async def test_networks_of_one_task_that_exclude_each_other(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(MAC, IP, a_node("n1", link_kinds=KINDS), on("mac", "ip", replicas=1))
        await trio.sleep(2)
        assert waiting(world, "mac-ip") == [
            "no suitable node (parent interface eth0 for network ip is used by another network of the task on 1 node)"
        ]
