"""Which host must know a way to which task, and what its agent is told of changes."""

from __future__ import annotations

import random

import msgspec
import pytest

from beeyard.core.model import Link, Node, NodeStatus, Task
from beeyard.core.states import TaskState
from beeyard.core.wire import HostRoute, Routes
from beeyard.manager.dispatch.route_table import RouteTable, next_hop
from beeyard.manager.dispatch.routes import PART_ROUTES, RouteBook
from tests.support.builders import a_link, a_node, a_task
from tests.support.grants import a_grant


def a_routed_task(
    task_id: str,
    node_id: str,
    *addresses: str,
    network: str = "net1",
    mode: str = "l3",
    driver: str = "ipvlan",
    state: TaskState = TaskState.RUNNING,
) -> Task:
    """A task on an ipvlan network; the parent is eth0."""
    grant = a_grant(*addresses, network_id=network, driver=driver, mode=mode, gateways=())
    return msgspec.structs.replace(a_task(task_id, state=state, node_id=node_id), grants=(grant,))


class World:
    """Some nodes and tasks, the table that follows them, and a book for each node."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.table = RouteTable(self.nodes, self._touch)
        self.books = {node.id: RouteBook(self.table, node.id) for node in nodes}
        self.known: dict[str, dict[str, HostRoute]] = {node.id: {} for node in nodes}  # as their agents were told

    def _touch(self, node_id: str, destination: str | None) -> None:
        if node_id in self.books:
            self.books[node_id].touch(destination)

    def put(self, *tasks: Task) -> None:
        for task in tasks:
            self.table.set_task(task.id, task)

    def set_node(self, node: Node) -> None:
        old, self.nodes[node.id] = self.nodes[node.id], node
        self.table.set_node(old, node)

    def take(self, node_id: str) -> list[Routes]:
        """What the node's agent is told now."""
        told = self.books[node_id].take()
        if told and told[0].complete:
            self.known[node_id] = {}
        known = self.known[node_id]
        for message in told:
            for destination in message.removed:
                del known[destination]
            known.update((route.destination, route) for route in message.routes)
        return told

    def ways(self, node_id: str) -> dict[str, str]:
        """What the node's agent has after that: destination → next hop."""
        self.take(node_id)
        return {route.destination: route.via for route in self.known[node_id].values()}


def three_hosts() -> World:
    """n1, n2 and n3 with addresses .1, .2 and .3 of one LAN on eth0."""
    return World(*(a_node(f"n{i}", links=[a_link("eth0", f"10.0.0.{i}/24", f"fd00::{i}/64")]) for i in (1, 2, 3)))


def test_a_host_with_a_task_of_the_network_gets_ways_to_those_elsewhere() -> None:
    """Both families, none to its own tasks, and none for a host that has no task of the network."""
    world = three_hosts()
    world.put(a_routed_task("a", "n1", "10.8.0.1/24", "fd08::1/64"), a_routed_task("b", "n2", "10.8.0.2/24"))
    assert world.ways("n1") == {"10.8.0.2/32": "10.0.0.2"}
    assert world.ways("n2") == {"10.8.0.1/32": "10.0.0.1", "fd08::1/128": "fd00::1"}
    assert world.ways("n3") == {}


@pytest.mark.parametrize(
    "other",
    [
        a_routed_task("b", "n2", "10.8.0.2/24", network="net2"),
        a_routed_task("b", "n2", "10.8.0.2/24", mode="l2"),
        a_routed_task("b", "n2", "10.8.0.2/24", driver="macvlan", mode="bridge"),
        a_routed_task("b", "n2", "10.8.0.2/24", state=TaskState.FAILED),
        a_routed_task("b", "", "10.8.0.2/24", state=TaskState.PENDING),
        a_routed_task("b", "n1", "10.8.0.2/24"),
    ],
)
def test_no_way_is_needed_to(other: Task) -> None:
    """Tasks of other networks, on the LAN itself, over, not placed yet, or on the same host."""
    world = three_hosts()
    world.put(a_routed_task("a", "n1", "10.8.0.1/24"), other)
    assert world.ways("n1") == {}


def test_a_session_without_routes_says_nothing_and_changes_are_small() -> None:
    """The first word is complete, or there is none; afterwards only what changed is said."""
    world = three_hosts()
    assert world.take("n1") == []
    world.put(a_routed_task("a", "n1", "10.8.0.1/24"), a_routed_task("b", "n2", "10.8.0.2/24"))
    first = HostRoute(destination="10.8.0.2/32", via="10.0.0.2", parent="eth0", node="n2")
    assert world.take("n1") == [Routes(complete=False, routes=(first,))]
    assert world.take("n1") == []
    assert world.take("n2")[0].complete
    world.put(a_routed_task("c", "n3", "10.8.0.3/24"))
    (change,) = world.take("n1")
    assert ([r.destination for r in change.routes], change.removed) == (["10.8.0.3/32"], ())
    world.put(a_routed_task("b", "n2", "10.8.0.2/24", state=TaskState.SHUTDOWN))
    assert world.take("n1") == [Routes(complete=False, removed=("10.8.0.2/32",))]
    # A status that moves on is no news.
    world.put(a_routed_task("c", "n3", "10.8.0.3/24", state=TaskState.READY))
    assert world.take("n1") == []


def test_an_address_that_moves_is_one_change() -> None:
    """From one host to another; and to the asking host itself, where it is local."""
    world = three_hosts()
    world.put(a_routed_task("a", "n1", "10.8.0.1/24"), a_routed_task("b", "n2", "10.8.0.2/24"))
    world.take("n1")
    world.put(a_routed_task("b", "n2", "10.8.0.2/24", state=TaskState.FAILED), a_routed_task("c", "n3", "10.8.0.2/24"))
    (change,) = world.take("n1")
    assert ([route.via for route in change.routes], change.removed) == (["10.0.0.3"], ())
    world.put(a_routed_task("c", "n3", "10.8.0.2/24", state=TaskState.FAILED), a_routed_task("d", "n1", "10.8.0.2/24"))
    assert world.ways("n1") == {}


def test_a_host_that_changes_its_address_is_reached_through_the_new_one() -> None:
    world = three_hosts()
    world.put(a_routed_task("a", "n1", "10.8.0.1/24"), a_routed_task("b", "n2", "10.8.0.2/24"))
    world.take("n1")
    world.set_node(a_node("n2", links=[a_link("eth0", "10.0.0.22/24")]))
    assert world.ways("n1") == {"10.8.0.2/32": "10.0.0.22"}


def test_the_last_task_of_a_network_takes_all_ways_along() -> None:
    """And many of them go in parts, all but the last marked."""
    world = three_hosts()
    n = PART_ROUTES + 10
    addresses = [f"10.{8 + i // 65536}.{i // 256 % 256}.{i % 256}/8" for i in range(n)]
    world.put(*(a_routed_task(f"b{i}", "n2", address) for i, address in enumerate(addresses)))
    world.put(a_routed_task("a", "n1", "10.200.0.1/8"))
    told = world.take("n1")
    assert [(len(m.routes), m.complete, m.more) for m in told] == [(PART_ROUTES, True, True), (10, True, False)]
    world.put(a_routed_task("a", "n1", "10.200.0.1/8", state=TaskState.COMPLETE))
    assert [(len(m.removed), m.more) for m in world.take("n1")] == [(PART_ROUTES, True), (10, False)]


@pytest.mark.parametrize(
    ("theirs", "known", "version", "via"),
    [
        (("192.168.7.9/24", "10.0.0.2/24"), "", 4, "10.0.0.2"),  # on the subnet that both have
        (("192.168.7.9/24",), "10.0.0.9", 4, "10.0.0.9"),  # the known one is, those of the link are not
        (("192.168.7.9/24",), "172.16.0.9", 4, "192.168.7.9"),  # nothing is near: that one may be behind a router
        ((), "172.16.0.9", 4, "172.16.0.9"),
        (("fe80::2/64", "fd99::2/64"), "", 6, "fe80::2"),
        (("fe80::2/64", "fd00::2/64"), "", 6, "fd00::2"),
        (("10.0.0.2/24",), "10.0.0.2", 6, ""),
        ((), "unix:", 4, ""),
    ],
)
def test_next_hop(theirs: tuple[str, ...], known: str, version: int, via: str) -> None:
    """What is nearest goes first; no address of the family gives none."""
    own = a_node("n1", links=[a_link("eth0", "10.0.0.1/24", "fd00::1/64")])
    other = msgspec.structs.replace(
        a_node("n2", links=[a_link("eth0", *theirs), Link(name="eth1", addresses=("10.0.0.77/24",))]),
        status=NodeStatus(address=known),
    )
    assert next_hop(other, "eth0", own, "eth0", version) == via
    assert next_hop(None, "eth0", own, "eth0", version) == ""


@pytest.mark.parametrize("seed", range(30))
def test_agents_that_hear_every_change_know_what_a_fresh_look_gives(seed: int) -> None:
    """Tasks come, end and move at random, nodes change; whenever an agent is told, it has what the rule says."""
    rng = random.Random(seed)
    world = three_hosts()
    tasks: dict[str, Task] = {}
    for step in range(120):
        if rng.random() < 0.1:
            number = rng.randint(1, 3)
            address = f"10.0.0.{number + rng.choice((0, 10))}/24"
            world.set_node(a_node(f"n{number}", links=[a_link("eth0", address)]))
        elif tasks and rng.random() < 0.4:
            task_id = rng.choice(sorted(tasks))
            del tasks[task_id]
            world.table.set_task(task_id, None)
        else:
            free = [f"10.8.0.{i}/24" for i in range(8) if f"10.8.0.{i}/24" not in held(tasks)]
            if free:
                node, network = f"n{rng.randint(1, 3)}", f"net{rng.randint(1, 2)}"
                task = a_routed_task(f"t{step}", node, rng.choice(free), network=network)
                tasks[task.id] = task
                world.put(task)
        node_id = f"n{rng.randint(1, 3)}"
        assert world.ways(node_id) == expected(tasks, world.nodes, node_id)


def held(tasks: dict[str, Task]) -> list[str]:
    return [grant.addresses[0] for task in tasks.values() for grant in task.grants]  # type: ignore[union-attr]


def expected(tasks: dict[str, Task], nodes: dict[str, Node], node_id: str) -> dict[str, str]:
    """The rule by looking at everything."""
    networks = {grant.network_id for t in tasks.values() if t.node_id == node_id for grant in t.grants}  # type: ignore[union-attr]
    return {
        f"{grant.addresses[0].partition('/')[0]}/32": nodes[task.node_id]  # type: ignore[union-attr]
        .description.links[0]
        .addresses[0]
        .partition("/")[0]
        for task in tasks.values()
        for grant in task.grants
        if task.node_id != node_id and grant.network_id in networks  # type: ignore[union-attr]
    }
