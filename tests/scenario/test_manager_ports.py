"""Published ports in the manager: fixed ones are placed around each other, the others are chosen on the node."""

from __future__ import annotations

import msgspec
import trio

from beeyard.core.grant import MappedPort, PortGrant
from beeyard.core.host_ports import PORT_FIRST
from beeyard.core.model import HostPort, Node, PublishedPort, Service, Task, fixed_ports
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.store import Transaction
from tests.support.builders import a_node, a_service, a_task_spec
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState
WEB = PublishedPort(target=80, published=8080)
ANY = PublishedPort(target=80)


def a_web(replicas: int, *ports: PublishedPort, service_id: str = "s1", name: str = "web") -> Service:
    return a_service(service_id, name=name, replicas=replicas, task=a_task_spec(ports=ports))


def mapped(task: Task) -> list[MappedPort]:
    return [port for grant in task.grants if isinstance(grant, PortGrant) for port in grant.ports]


async def publish(world: ManagerWorld, *ports: PublishedPort) -> None:
    """What `docker service update --publish-add` and `--publish-rm` store."""

    def build(tx: Transaction) -> None:
        service = tx.find(Service, "s1")
        task = msgspec.structs.replace(service.spec.task, ports=ports, host_ports=fixed_ports(ports))
        spec = msgspec.structs.replace(service.spec, task=task)
        tx.update(msgspec.structs.replace(service, spec=spec, spec_version=service.spec_version + 1))

    await world.store.commit(build)


async def test_a_fixed_port_is_served_once_on_each_node_and_the_rest_waits(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_web(3, WEB))
        await trio.sleep(1)
        running = world.running()
        assert sorted(task.node_id for task in running) == ["n1", "n2"]
        assert [mapped(task) for task in running] == [[MappedPort(published=8080, target=80)]] * 2
        (waiting,) = [task for task in world.tasks() if task.status.state is S.PENDING]
        assert waiting.status.err == "no suitable node (host-mode port already in use on 2 nodes)"
        world.check_books()
        await world.add(a_node("n3"))
        await trio.sleep(1)
        assert sorted(task.node_id for task in world.running()) == ["n1", "n2", "n3"]


async def test_ports_that_nobody_fixed_are_chosen_on_the_node_and_differ_there(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_web(4, ANY, PublishedPort(protocol="udp", target=53)))
        await trio.sleep(1)
        by_node = {
            node_id: sorted(
                (p.published, p.protocol) for t in world.running() if t.node_id == node_id for p in mapped(t)
            )
            for node_id in ("n1", "n2")
        }
        both = [(PORT_FIRST + n, protocol) for n in (0, 1) for protocol in ("tcp", "udp")]
        assert by_node == {"n1": both, "n2": both}
        world.check_books()


async def test_a_chosen_port_avoids_fixed_ones_and_foreign_listeners_of_its_node(autojump_clock: object) -> None:
    async with manager_world() as world:
        fixed = PublishedPort(target=80, published=PORT_FIRST)
        await world.add(a_node("n1", listening=[HostPort(port=PORT_FIRST + 1)]), a_web(1, fixed))
        await world.add(a_web(2, ANY, service_id="s2", name="any"))
        await trio.sleep(1)
        assert sorted(p.published for task in world.running("s2") for p in mapped(task)) == [
            PORT_FIRST + 2,
            PORT_FIRST + 3,
        ]
        late = PublishedPort(target=80, published=PORT_FIRST + 2)
        await world.add(a_web(1, late, service_id="s3", name="late"))
        await trio.sleep(1)
        (waiting,) = world.tasks(service_id="s3")
        assert waiting.status.err == "no suitable node (host-mode port already in use on 1 node)"
        world.check_books()


async def test_a_foreign_listener_that_appears_or_goes_counts_from_the_nodes_next_word(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1", listening=[HostPort(port=8080)]), a_web(1, WEB))
        await trio.sleep(1)
        assert world.tasks()[0].status.err == "no suitable node (host-mode port already in use on 1 node)"

        def gone(tx: Transaction) -> None:
            node = tx.find(Node, "n1")
            description = msgspec.structs.replace(node.description, listening=())
            tx.update(msgspec.structs.replace(node, description=description))

        await world.store.commit(gone)
        await trio.sleep(1)
        assert [task.node_id for task in world.running()] == ["n1"]


async def test_a_full_range_lets_the_rest_wait(autojump_clock: object) -> None:
    async with manager_world(port_range=(100, 101)) as world:
        await world.add(a_node("n1"), a_web(3, ANY))
        await trio.sleep(10)
        assert sorted(p.published for task in world.running() for p in mapped(task)) == [100, 101]
        (waiting,) = [task for task in world.tasks() if task.status.state is S.PENDING]
        reason = "no tcp port from 100 to 101 is free on this node"
        assert waiting.status.err == f"no suitable node (refused by an allocation hook on 1 node): port: {reason}"
        world.check_books()


async def test_a_restarted_manager_holds_what_was_chosen_before_it_chooses_anew(autojump_clock: object) -> None:
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(a_node("n1"), a_web(2, ANY))
        await trio.sleep(1)
        before = {task.id: mapped(task) for task in world.running()}
    async with manager_world(database) as world:
        await world.scale(4)
        await trio.sleep(1)
        after = {task.id: mapped(task) for task in world.running()}
        assert {task_id: after[task_id] for task_id in before} == before
        assert len({port.published for ports in after.values() for port in ports}) == 4
        world.check_books()


async def test_ports_are_held_until_the_end_was_observed_also_of_a_node_that_is_down(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_web(1, WEB, ANY))
        await trio.sleep(1)
        await world.set_node("n1", NodeState.DOWN)
        await world.remove_service()
        await trio.sleep(60)
        (held,) = world.tasks()
        assert held.holds_room
        assert world.ports.grants() == [held.grants[0].id]
        await world.set_node("n1", NodeState.READY)
        await trio.sleep(1)
        assert world.ports.grants() == []
        await world.add(a_web(1, WEB, service_id="s2", name="next"))
        await trio.sleep(1)
        assert [task.node_id for task in world.running("s2")] == ["n1"]


async def test_an_update_of_ports_replaces_the_tasks_and_the_old_port_is_free(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_web(1, WEB))
        await trio.sleep(1)
        (old,) = world.running()
        await publish(world, PublishedPort(target=80, published=9090))
        await trio.sleep(5)
        (new,) = world.running()
        assert new.id != old.id
        assert [p.published for p in mapped(new)] == [9090]
        await world.add(a_web(1, WEB, service_id="s2", name="next"))
        await trio.sleep(1)
        assert len(world.running("s2")) == 1
        world.check_books()


async def test_an_update_that_keeps_the_fixed_port_waits_for_it_on_the_only_node(autojump_clock: object) -> None:
    """Stop-first: the old task's port is free once its end was observed, and only then is the new one placed."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_web(1, WEB))
        await trio.sleep(1)
        await publish(world, WEB, PublishedPort(protocol="udp", target=80, published=8080))
        await trio.sleep(5)
        (new,) = world.running()
        assert [(p.protocol, p.published) for p in mapped(new)] == [("tcp", 8080), ("udp", 8080)]
        world.check_books()
