"""What agents are told of the tasks of their node, over real sessions."""

import msgspec
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import Service, Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import Assignments, Heartbeat, LeaseRenewed, Resync
from tests.support.builders import a_service, a_task
from tests.support.dispatch_world import Agent, DispatchWorld, a_dispatch_world

S = TaskState


def ids(assignments: Assignments) -> list[str]:
    return [task.id for task in assignments.tasks]


async def a_session(world: DispatchWorld) -> Agent:
    return await world.session(await world.join())


async def test_first_set_is_complete_and_names_assigned_tasks_of_this_node_alone(autojump_clock: object) -> None:
    """Tasks that are placed, ended ones too; none that waits, none of another node."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        mine = {"node_id": peer.node_id}
        await world.put(
            a_service(),
            a_task("waits", state=S.PENDING),
            a_task("new", state=S.ASSIGNED, **mine),
            a_task("runs", state=S.RUNNING, slot=2, **mine),
            a_task("ended", state=S.COMPLETE, slot=3, **mine),
            a_task("elsewhere", state=S.RUNNING, slot=4, node_id="other"),
        )
        agent = await world.session(peer)
        assert agent.first is not None
        assert agent.first.complete
        assert ids(agent.first) == ["new", "runs", "ended"]
        assert [t.state for t in agent.first.tasks] == [S.ASSIGNED, S.RUNNING, S.COMPLETE]


async def test_task_is_told_when_it_is_assigned_not_when_it_is_made(autojump_clock: object) -> None:
    """Creating a task gives no message, its commit to the node does."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await world.put(a_service(), a_task(state=S.PENDING))
        await agent.hear_nothing()
        await world.put(a_task(state=S.ASSIGNED, node_id=agent.node_id))
        heard = await agent.hear(Assignments)
        assert (heard.complete, heard.applies_to, heard.results_in) == (False, 1, 2)
        assert ids(heard) == ["t1"]


async def test_status_alone_is_no_news_and_desired_state_is(autojump_clock: object) -> None:
    """An agent is not told what it reported; it is told what it should do."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await world.put(a_service(), a_task(state=S.ASSIGNED, node_id=agent.node_id))
        await agent.hear(Assignments)

        await world.put(msgspec.structs.replace(world.task("t1"), status=TaskStatus(state=S.RUNNING)))
        await agent.hear_nothing()
        await world.want("t1", S.SHUTDOWN)
        heard = await agent.hear(Assignments)
        assert [(t.id, t.desired_state, t.state) for t in heard.tasks] == [("t1", S.SHUTDOWN, S.RUNNING)]


async def test_grants_are_told(autojump_clock: object) -> None:
    """What was reserved for a task reaches its node as it is stored."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        grant = AddressGrant(
            id="g1",
            hook="address",
            network_id="net1",
            network_name="lan",
            pool_id="p1",
            pool_name="lan-r1",
            segment="10.77.0.0/24",
            driver="macvlan",
            parent="eth0",
            addresses=("10.77.0.64/24",),
        )
        task = a_task(state=S.ASSIGNED, node_id=agent.node_id)
        await world.put(a_service(), msgspec.structs.replace(task, grants=(grant,)))
        assert (await agent.hear(Assignments)).tasks[0].grants == (grant,)

        moved = msgspec.structs.replace(grant, mtu=1400)
        await world.put(msgspec.structs.replace(world.task("t1"), grants=(moved,)))
        assert (await agent.hear(Assignments)).tasks[0].grants == (moved,)


async def test_changes_within_a_window_are_one_set_with_their_net_effect(autojump_clock: object) -> None:
    """Created, changed and deleted in one breath: an agent hears only what is left of it."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await world.put(a_service(), *(a_task(f"t{n}", state=S.ASSIGNED, node_id=agent.node_id) for n in (1, 2)))
        await agent.hear(Assignments)

        await world.want("t1", S.SHUTDOWN)
        await world.put(a_task("t3", state=S.ASSIGNED, node_id=agent.node_id))
        await world.put(a_task("t4", state=S.ASSIGNED, node_id=agent.node_id))
        await world.remove(Task, "t3")
        await world.remove(Task, "t2")
        heard = await agent.hear(Assignments)
        assert ids(heard) == ["t1", "t4"]
        assert heard.removed == ("t2",)
        await agent.hear_nothing()


async def test_task_that_came_and_went_within_a_window_is_never_told(autojump_clock: object) -> None:
    """No net effect, no message."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await world.put(a_service(), a_task(state=S.ASSIGNED, node_id=agent.node_id))
        await world.remove(Task, "t1")
        await agent.hear_nothing()


async def test_resync_is_answered_with_a_complete_set(autojump_clock: object) -> None:
    """An agent that missed a set gets all of it, and sets go on from there."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await world.put(a_service(), a_task(state=S.ASSIGNED, node_id=agent.node_id))
        await agent.hear(Assignments)
        await agent.say(Resync(last_seen=1))
        heard = await agent.hear(Assignments)
        assert (heard.complete, heard.applies_to, heard.results_in, ids(heard)) == (True, 0, 3, ["t1"])

        await world.remove(Task, "t1")
        heard = await agent.hear(Assignments)
        assert (heard.complete, heard.applies_to, heard.results_in, heard.removed) == (False, 3, 4, ("t1",))


async def test_session_that_follows_sees_what_happened_between(autojump_clock: object) -> None:
    """A new session starts with a complete set, so nothing that was missed matters."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        await world.put(a_service(), *(a_task(f"t{n}", state=S.ASSIGNED, node_id=peer.node_id) for n in (1, 2)))
        await agent.hear(Assignments)
        await agent.close()
        await world.remove(Task, "t1")
        again = await world.session(peer)
        assert again.first is not None
        assert (again.first.complete, ids(again.first)) == (True, ["t2"])


async def test_fence_stays_when_the_service_is_gone(autojump_clock: object) -> None:
    """A task that stops after its service was deleted keeps the lease that it was started with."""
    async with a_dispatch_world() as world:
        agent = await a_session(world)
        await agent.say(Heartbeat(number=1))
        await agent.hear(LeaseRenewed)
        service = a_service(labels={"beeyard.on-isolation": "fence"})
        task = a_task(state=S.ASSIGNED, node_id=agent.node_id)
        await world.put(service, msgspec.structs.replace(task, fence=True))
        await agent.hear(LeaseRenewed)
        first = (await agent.hear(Assignments)).tasks[0]
        assert (first.lease_s, first.fence, first.service_labels) == (60.0, True, {"beeyard.on-isolation": "fence"})

        await world.remove(Service, "s1")
        await world.want("t1", S.REMOVE)
        last = (await agent.hear(Assignments)).tasks[0]
        assert (last.desired_state, last.lease_s, last.fence) == (S.REMOVE, 60.0, True)
        assert last.service_labels == first.service_labels


async def test_task_of_an_older_version_keeps_the_labels_of_that_version(autojump_clock: object) -> None:
    """Labels belong to the version of the service that a task was made of."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        old, new = a_service(labels={"release": "1"}), a_service(labels={"release": "2"})
        service = msgspec.structs.replace(new, spec_version=2, previous_spec=old.spec)
        await world.put(
            service,
            a_task("t1", state=S.RUNNING, node_id=peer.node_id, spec_version=1),
            a_task("t2", state=S.RUNNING, node_id=peer.node_id, spec_version=2, slot=2),
        )
        agent = await world.session(peer)
        assert agent.first is not None
        assert [t.service_labels["release"] for t in agent.first.tasks] == ["1", "2"]


async def test_many_sessions_hear_only_of_their_own_tasks(autojump_clock: object) -> None:
    """Twenty agents, sixty tasks in one commit: one message each."""
    async with a_dispatch_world() as world:
        agents = [await world.session(await world.join(f"yard{n}")) for n in range(20)]
        tasks = [
            a_task(f"t{n}", slot=n + 1, state=S.ASSIGNED, node_id=agents[n % 20].node_id, service_id="s1")
            for n in range(60)
        ]
        await world.put(a_service(replicas=60), *tasks)
        with trio.fail_after(1):
            for number, agent in enumerate(agents):
                assert ids(await agent.hear(Assignments)) == [f"t{number + 20 * k}" for k in range(3)]
        for agent in agents:
            await agent.hear_nothing(0.1)
