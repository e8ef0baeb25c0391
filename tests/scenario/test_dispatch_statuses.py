"""What agents report, on its way to the store."""

import msgspec
import trio

from beeyard.core.model import AddressConflict, Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import StatusAck, StatusReport, TaskReport
from tests.support.builders import a_service, a_task
from tests.support.dispatch_world import Agent, DispatchWorld, a_dispatch_world
from tests.support.grants import a_grant
from tests.support.memory_database import MemoryDatabase

S = TaskState


async def an_agent_with_tasks(world: DispatchWorld, n_tasks: int = 1, hostname: str = "yard2") -> Agent:
    """An agent in a session whose node has the tasks t1, t2, … of its hostname's service."""
    peer = await world.join(hostname)
    tasks = [
        a_task(f"{hostname}-t{n}", slot=n, state=S.ASSIGNED, node_id=peer.node_id, service_id=f"s-{hostname}")
        for n in range(1, n_tasks + 1)
    ]
    await world.put(a_service(f"s-{hostname}", name=hostname), *tasks)
    return await world.session(peer)


async def test_report_is_stored_and_acknowledged(autojump_clock: object) -> None:
    """The acknowledgement says that the status survives whatever comes."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        await agent.report(1, ("yard2-t1", S.PREPARING))
        assert (await agent.hear(StatusAck)).number == 1
        status = world.task("yard2-t1").status
        assert (status.state, status.message) == (S.PREPARING, "PREPARING")


async def test_acknowledgement_waits_for_the_disk(autojump_clock: object) -> None:
    """While the disk hangs nothing is acknowledged; what comes meanwhile is acknowledged with the rest."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        agent = await an_agent_with_tasks(world)
        database.hold = trio.Event()
        await agent.report(1, ("yard2-t1", S.ACCEPTED))
        await agent.hear_nothing(5)
        await agent.report(2, ("yard2-t1", S.RUNNING))
        await agent.hear_nothing(5)
        database.hold.set()
        numbers = [(await agent.hear(StatusAck)).number]
        if numbers == [1]:
            numbers.append((await agent.hear(StatusAck)).number)
        assert numbers[-1] == 2
        assert world.task("yard2-t1").status.state is S.RUNNING


async def test_many_reports_are_stored_in_few_commits(autojump_clock: object) -> None:
    """At most 20 a second while reports keep coming; the first one after a quiet time does not wait for that."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        agent = await an_agent_with_tasks(world, 20)
        await trio.sleep(1)
        before = database.n_commits
        await agent.report(1, ("yard2-t1", S.ACCEPTED))
        await trio.sleep(0.03)
        assert database.n_commits == before + 1
        for number in range(2, 21):
            await agent.report(number, (f"yard2-t{number}", S.ACCEPTED))
            await trio.sleep(0.02)
        await trio.sleep(1)
        assert all(world.task(f"yard2-t{number}").status.state is S.ACCEPTED for number in range(1, 21))
        assert database.n_commits - before <= 10


async def test_agent_that_only_asks_hears_at_once(autojump_clock: object) -> None:
    """An empty report costs no commit, and is answered while the disk hangs: by what is durable, no more."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        agent = await an_agent_with_tasks(world)
        before = database.n_commits
        await agent.report(1)
        assert (await agent.hear(StatusAck)).number == 1
        assert database.n_commits == before

        database.hold = trio.Event()
        await agent.report(2, ("yard2-t1", S.ACCEPTED))
        await trio.sleep(1)
        await agent.report(3)
        assert (await agent.hear(StatusAck)).number == 1
        database.hold.set()
        while (await agent.hear(StatusAck)).number < 3:
            pass
        assert world.task("yard2-t1").status.state is S.ACCEPTED


async def test_disk_that_refuses_is_asked_again(autojump_clock: object) -> None:
    """A failed commit loses no report: it is stored and acknowledged once the disk works."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        agent = await an_agent_with_tasks(world)
        database.fail_when = lambda n: trio.current_time() < 3.0
        await agent.report(1, ("yard2-t1", S.RUNNING))
        await agent.hear_nothing(2)
        assert world.task("yard2-t1").status.state is S.ASSIGNED
        assert (await agent.hear(StatusAck, timeout_s=5)).number == 1
        assert world.task("yard2-t1").status.state is S.RUNNING


async def test_states_only_grow(autojump_clock: object) -> None:
    """A state that would go backwards is dropped and acknowledged; of several in one report the last counts."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        await agent.report(1, *(("yard2-t1", s) for s in (S.ACCEPTED, S.PREPARING, S.RUNNING)))
        await agent.hear(StatusAck)
        assert world.task("yard2-t1").status.state is S.RUNNING
        await agent.report(2, ("yard2-t1", S.PREPARING))
        assert (await agent.hear(StatusAck)).number == 2
        assert world.task("yard2-t1").status.state is S.RUNNING


async def test_states_that_are_not_an_agents_to_say_are_dropped(autojump_clock: object) -> None:
    """Only the manager writes what is below ACCEPTED, and ORPHANED."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        for number, state in enumerate((S.NEW, S.PENDING, S.ASSIGNED, S.REMOVE, S.ORPHANED), 1):
            await agent.report(number, ("yard2-t1", state))
            assert (await agent.hear(StatusAck)).number == number
            assert world.task("yard2-t1").status.message == ""


async def test_task_of_another_node_is_not_touched(autojump_clock: object) -> None:
    """An agent speaks for its own node alone; the report is acknowledged all the same."""
    async with a_dispatch_world() as world:
        await an_agent_with_tasks(world, hostname="yard2")
        other = await an_agent_with_tasks(world, hostname="yard3")
        await other.report(1, ("yard2-t1", S.FAILED), ("yard3-t1", S.RUNNING))
        await other.hear(StatusAck)
        assert world.task("yard2-t1").status.state is S.ASSIGNED
        assert world.task("yard3-t1").status.state is S.RUNNING


async def test_unknown_task_is_acknowledged(autojump_clock: object) -> None:
    """A task that was deleted meanwhile keeps no agent reporting for ever."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        await world.remove(Task, "yard2-t1")
        await agent.report(1, ("yard2-t1", S.SHUTDOWN), ("never-was", S.RUNNING))
        while not isinstance(message := await agent.hear(object), StatusAck):
            pass
        assert message.number == 1
        assert "never-was" not in world.store.tasks


async def test_reports_of_many_agents_share_a_commit(autojump_clock: object) -> None:
    """Fifty agents that report at once cost the disk one write or two, not fifty."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        agents = [await an_agent_with_tasks(world, 2, f"yard{n}") for n in range(50)]
        before = database.n_commits
        for number, agent in enumerate(agents):
            await agent.report(1, *((f"yard{number}-t{k}", S.RUNNING) for k in (1, 2)))
        for agent in agents:
            await agent.hear(StatusAck)
        assert database.n_commits - before <= 2
        assert all(task.status.state is S.RUNNING for task in world.store.tasks.values())


async def test_report_outlives_the_session_that_sent_it(autojump_clock: object) -> None:
    """What was reported just before the connection broke is stored."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        await agent.report(1, ("yard2-t1", S.FAILED))
        await agent.close()
        await trio.sleep(1)
        assert world.task("yard2-t1").status.state is S.FAILED


async def test_text_of_a_status_is_bounded(autojump_clock: object) -> None:
    """An agent cannot fill the store with one error message."""
    async with a_dispatch_world() as world:
        agent = await an_agent_with_tasks(world)
        status = TaskStatus(state=S.FAILED, err="x" * 100_000)
        await agent.say(StatusReport(number=1, reports=(TaskReport(task_id="yard2-t1", status=status),)))
        await agent.hear(StatusAck)
        assert len(world.task("yard2-t1").status.err) == 4096


async def test_conflicts_are_stored_only_of_the_tasks_own_addresses(autojump_clock: object) -> None:
    """An agent cannot have addresses put aside that its task never had, nor say anything of a task that runs."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        tasks = [
            msgspec.structs.replace(
                a_task(f"t{n}", slot=n, state=S.ASSIGNED, node_id=peer.node_id), grants=(a_grant(f"10.9.0.{n}/24"),)
            )
            for n in (1, 2)
        ]
        await world.put(a_service(), *tasks)
        agent = await world.session(peer)
        own = AddressConflict(address="10.9.0.1", mac="02:00:00:00:00:99")
        said = (
            own,
            own,
            AddressConflict(address="10.9.0.2", mac=own.mac),
            AddressConflict(address="10.9.0.1", mac="x" * 99),
        )
        reports = [
            TaskReport(task_id=task_id, status=TaskStatus(state=state, conflicts=said, at_s=1.0))
            for task_id, state in (("t1", S.REJECTED), ("t2", S.RUNNING))
        ]
        await agent.say(StatusReport(number=1, reports=tuple(reports)))
        await agent.hear(StatusAck)
        assert [world.task(task_id).status.conflicts for task_id in ("t1", "t2")] == [(own,), ()]
