"""The process executor under kill -9 of every process it has, at moments that hurt."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

import pytest
import trio

from beeyard.agent.executors.process import remains
from beeyard.agent.executors.process.controller import AT_ONCE, ProcessController
from beeyard.agent.executors.process.script import MAGIC, encode, pack
from beeyard.agent.executors.process.zygote_client import LineStream
from beeyard.core.errors import ExecutorError
from beeyard.runtime.host import Controller
from tests.support.executor_machine import RUNS, a_task, started
from tests.support.held import before_test, descriptors_and_threads
from tests.support.process_machine import ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns


@pytest.fixture
async def machine():
    async with a_process_machine() as made:
        yield made
        assert await made.leftovers() == []


async def ordered(controller: Controller) -> LineStream:
    """A connection to a shim that has its order, and has not heard yet that its task is kept."""
    assert isinstance(controller, ProcessController)
    controller._zygote.make_directories()
    script = await controller._script()
    lines = await controller._zygote.open_shim(controller.task_id)
    await lines.send_bytes(script)
    return lines


async def test_killed_zygote_is_replaced(machine: ProcessMachine) -> None:
    """Tasks do not notice that the zygote was killed, and the next task gets a new one."""
    first = await started(machine, a_task(machine, task_id="a" * 25))
    zygote = machine.executor.zygote_pid
    os.kill(zygote, signal.SIGKILL)
    second = await started(machine, a_task(machine, task_id="b" * 25))
    assert machine.executor.zygote_pid != zygote
    for controller in (first, second):
        assert controller.phase == "started"
        status = await controller.stop()
        assert status is not None
        assert status.signal == signal.SIGTERM
        await controller.remove()


async def test_zygote_killed_under_many_prepares(machine: ProcessMachine) -> None:
    """However often the zygote is killed while tasks are prepared, each task ends up prepared, once."""
    controllers = [await machine.executor.create(a_task(machine, task_id=f"t{n:024}")) for n in range(30)]
    async with trio.open_nursery() as nursery:
        for controller in controllers:
            nursery.start_soon(controller.prepare)
        for pause_s in (0.005, 0.03):
            await trio.sleep(pause_s)
            if machine.executor.zygote_pid:
                os.kill(machine.executor.zygote_pid, signal.SIGKILL)
    for controller in controllers:
        assert controller.phase == "prepared"
        assert len(machine.processes(controller.task_id)) == 1
        await controller.remove()


async def test_agent_killed_while_preparing(machine: ProcessMachine) -> None:
    """An agent that dies in the middle of prepare leaves nothing: the shim that it asked for undoes itself."""
    controller = await machine.executor.create(a_task(machine))
    await machine.executor.recover()  # the zygote is up, so that the pauses below fall into the shim's work
    for n in range(20):
        lines = await ordered(controller)
        await trio.sleep(n * 0.0005)
        lines.close()
        await machine.until_zygote_is_childless()
        assert await machine.leftovers_now() == [], n


async def test_zygote_killed_under_many_runs(machine: ProcessMachine) -> None:
    """The zygote is killed while tasks are run in one: each task runs, once."""
    tasks = [a_task(machine, task_id=f"t{n:024}", command=("echo", "ran")) for n in range(30)]
    controllers = [await machine.executor.create(task) for task in tasks]
    async with trio.open_nursery() as nursery:
        for controller in controllers:
            nursery.start_soon(controller.run)
        await trio.sleep(0.03)
        os.kill(machine.executor.zygote_pid, signal.SIGKILL)
    for controller in controllers:
        assert (await controller.wait()).code == 0
        assert machine.log(controller.task_id) == "ran\n"
        await controller.remove()


async def test_agent_killed_while_it_runs_a_task_at_once(machine: ProcessMachine) -> None:
    """A shim that was told to start needs no agent any more: the next one finds the task, and how it ended."""
    controller = await machine.executor.create(a_task(machine, command=("sh", "-c", "echo ran; exit 3")))
    assert isinstance(controller, ProcessController)
    lines = await ordered(controller)
    await lines.send_bytes(AT_ONCE)
    with trio.fail_after(20):
        while not (answer := await lines.receive()) or answer["phase"] == "prepared":
            assert answer
    lines.close()
    await machine.restart_agent()
    (found,) = await machine.executor.recover()
    assert (await found.wait()).code == 3
    assert machine.log() == "ran\n"
    await found.remove()


async def test_agent_killed_within_its_one_word(machine: ProcessMachine) -> None:
    """Wherever the word breaks off the task is not there, or prepared, or runs once: never something in between."""
    await machine.executor.recover()  # the zygote is up
    keep, start = (AT_ONCE.index(line) + len(line) for line in (b'"keep"}\n', b'"patience_s": 0.01}\n'))
    phases = []
    for n, n_bytes in enumerate((0, 1, keep - 1, keep, keep + 1, start - 1, start, start + 1, len(AT_ONCE))):
        task = a_task(machine, command=("echo", "ran"), task_id=f"t{n:024}")
        lines = await ordered(await machine.executor.create(task))
        await lines.send_bytes(AT_ONCE[:n_bytes])
        lines.end()
        with trio.fail_after(20), contextlib.suppress(ConnectionResetError):
            while await lines.receive() is not None:
                pass
        lines.close()
        found = await machine.executor.create(task)
        assert isinstance(found, ProcessController)
        phases.append(found.phase if await found.adopt() else "gone")
        if n_bytes >= start:
            assert (await found.wait()).code == 0
            assert machine.log(task.id) == "ran\n"
        await found.remove()
    assert phases[:6] == ["gone"] * 3 + ["prepared"] * 3
    assert "gone" not in phases[6:]


async def test_shim_killed_when_it_has_said_half_of_what_went_wrong(machine: ProcessMachine) -> None:
    """Whoever hears only that it failed, and no more, leaves nothing of it behind."""
    made = await machine.executor.create(a_task(machine))
    await made.prepare()
    await machine.kill_shim(made.task_id)
    controller = await machine.executor.create(a_task(machine))
    assert isinstance(controller, ProcessController)
    ours, theirs = socket.socketpair()
    theirs.sendall(b'{"error": "it did not work"}\n')
    theirs.close()
    ours.setblocking(False)
    lines = LineStream(ours)
    with pytest.raises(ExecutorError, match="it did not work"):
        await controller._hear_start(lines)
    lines.close()
    await controller.remove()


async def test_shim_killed_while_its_task_is_run_at_once(machine: ProcessMachine) -> None:
    """Whenever it is killed, the program has not run twice: there is an end, or a task that was started."""
    await machine.executor.recover()  # the zygote is up
    for n in range(20):
        controller = await machine.executor.create(a_task(machine, command=("echo", "ran"), task_id=f"t{n:024}"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.run)
            await trio.sleep(n * 0.0005)
            for pid in machine.processes(controller.task_id):
                with contextlib.suppress(ProcessLookupError):  # the program's, which has ended
                    os.kill(pid, signal.SIGKILL)
        assert await controller.stop() is not None
        assert machine.log(controller.task_id) in ("", "ran\n")
        await controller.remove()


MALFORMED = (
    *(
        b"nonsense",
        b"[]",
        b'"status"',
        b"7",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"op": ["status"]}',
        b'{"op": "stop"}',
    ),
    *(b'{"op": "lease"}', b'{"op": "lease", "remaining_s": "soon"}', b'{"op": "lease", "remaining_s": NaN}'),
    *(b'{"op": "lease", "remaining_s": -Infinity}', b'{"op": "lease", "remaining_s": [1]}'),
)


async def test_a_malformed_request_is_answered_and_ends_nothing(machine: ProcessMachine) -> None:
    """Whatever is said to a shim, its task runs on, and the same connection may ask again."""
    controller = await started(machine, a_task(machine))
    sock = remains.connect(machine.executor.places.shim_dir(controller.task_id))
    assert sock is not None
    async with LineStream(sock) as lines:
        for request in MALFORMED:
            await lines.send_bytes(request + b"\n")
            with trio.fail_after(10):
                answer = await lines.receive()
            assert answer is not None, request[:40]
            assert "request" in str(answer["error"]), request[:40]
        await lines.send(op="status")
        answer = await lines.receive()
        assert answer is not None
        assert answer["phase"] == "started"
        assert answer["lapsed"] is False
    await controller.remove()


@pytest.mark.parametrize("said", [b"nonsense\n", b"[]\n"])
async def test_a_shim_that_hears_nonsense_instead_of_keep_undoes_itself(machine: ProcessMachine, said: bytes) -> None:
    """It is not kept, so nobody knows of it."""
    controller = await machine.executor.create(a_task(machine))
    async with await ordered(controller) as lines:
        assert await lines.receive() is not None
        await lines.send_bytes(said)
        answer = await lines.receive()
        assert answer is not None
        assert str(answer["error"]).startswith("malformed request")
    await machine.until_zygote_is_childless()
    assert await machine.leftovers_now() == []


async def test_a_lease_that_is_no_number_is_refused(machine: ProcessMachine) -> None:
    """It is told before anything is made."""
    controller = await machine.executor.create(a_task(machine, lease_s=float("nan")))
    with pytest.raises(ExecutorError, match="a lease of nan s is none"):
        await controller.prepare()
    assert await machine.leftovers_now() == []


@pytest.mark.parametrize("at", ["task.msgpack", "work"])
async def test_a_step_that_fails_leaves_nothing(machine: ProcessMachine, at: str) -> None:
    """Whichever it is, here for a name that is too long, it is named, and what was made before it is undone."""
    controller = await machine.executor.create(a_task(machine))
    assert isinstance(controller, ProcessController)
    controller._zygote.make_directories()
    script = await controller._script()
    body = script[16:].replace(f"/{at}\0".encode(), f"/{at}{'x' * 300}\0".encode(), 1)
    grown = len(body) + 16 - len(script)
    sizes = [int.from_bytes(script[i : i + 4], sys.byteorder) for i in (8, 12)]
    header = script[:8] + (sizes[0] + grown).to_bytes(4, sys.byteorder) + sizes[1].to_bytes(4, sys.byteorder)
    async with await controller._zygote.open_shim(controller.task_id) as lines:
        await lines.send_bytes(header + body)
        answer = await lines.receive()
    assert answer is not None
    assert str(answer["error"]).endswith(f"{at}{'x' * 300}: File name too long")
    await machine.until_zygote_is_childless()
    assert await machine.leftovers_now() == []


@pytest.mark.parametrize("sent", [b"x" * 16, MAGIC + b"\xff" * 8, pack(encode([("begin",)]))])
async def test_an_order_that_is_none_is_refused_by_the_shim(machine: ProcessMachine, sent: bytes) -> None:
    """It says so, and does nothing."""
    controller = await machine.executor.create(a_task(machine))
    assert isinstance(controller, ProcessController)
    async with await controller._zygote.open_shim(controller.task_id) as lines:
        await lines.send_bytes(sent)
        answer = await lines.receive()
        assert answer is not None
        assert str(answer["error"]).startswith(("malformed order", "the task's description is too long"))
    await machine.until_zygote_is_childless()


async def test_shim_killed_before_it_is_kept(machine: ProcessMachine) -> None:
    """What a shim had made when it was killed is found by the next agent, and removed: it never ran anything."""
    task = a_task(machine)
    controller = await machine.executor.create(task)
    async with await ordered(controller) as lines:
        assert await lines.receive() is not None
        await machine.kill_shim(task.id)
    assert os.path.isdir(machine.executor.places.shim_dir(task.id))
    del controller
    await machine.restart_agent()
    assert await machine.executor.recover() == []
    assert await machine.leftovers() == []


async def test_hanging_half_made_shim_is_killed(machine: ProcessMachine) -> None:
    """A shim that does not listen yet is nobody's, whatever state it is in."""
    controller = await machine.executor.create(a_task(machine))
    await machine.executor.recover()
    lines = await ordered(controller)
    while not machine.processes():
        await trio.lowlevel.checkpoint()
    (pid,) = machine.processes()
    os.kill(pid, signal.SIGSTOP)
    listening = os.path.exists(f"{machine.executor.places.shim_dir('t' * 25)}/sock")
    lines.close()
    if listening:  # it got further than this test wants; let it undo itself
        os.kill(pid, signal.SIGCONT)
        return
    del controller
    await machine.restart_agent()
    assert await machine.executor.recover() == []


async def test_remains_do_not_block_a_new_task(machine: ProcessMachine) -> None:
    """A task whose shim was killed can be prepared again under its id without `recover`."""
    task = a_task(machine)
    await started(machine, task)
    await machine.kill_shim(task.id)
    again = await machine.executor.create(task)
    await again.prepare()
    await again.start()
    assert again.phase == "started"
    await again.remove()


async def test_files_of_a_lost_task_are_swept(machine: ProcessMachine) -> None:
    """Directories and cgroups with nobody behind them go at recovery."""
    places = machine.executor.places
    os.makedirs(f"{places.shim_dir('x' * 25)}")
    os.makedirs(f"{places.task_dir('y' * 25)}/work/deep")
    for path in places.cgroup("z" * 25).paths:
        os.makedirs(path)
    assert len(await machine.leftovers_now()) == 3
    assert await machine.executor.recover() == []
    assert await machine.leftovers() == []


async def test_idle_executor_leaves_no_cgroup(machine: ProcessMachine) -> None:
    """An agent that ends with no task on its host takes its level of the cgroup trees with it; one with tasks does not."""
    places = machine.executor.places
    parents = [f"{hierarchy.path}/{places.cgroup_parent}" for hierarchy in places.hierarchies()]
    await started(machine, a_task(machine))
    await machine.restart_agent()
    assert all(os.path.isdir(parent) for parent in parents)
    (controller,) = await machine.executor.recover()
    await controller.remove()
    await machine.restart_agent()
    assert not any(os.path.isdir(parent) for parent in parents)


async def test_many_tasks_leave_no_descriptors(machine: ProcessMachine) -> None:
    """Forty tasks at once come and go; the agent holds no descriptor more than before."""
    warm = await started(machine, a_task(machine))
    await warm.remove()
    before = before_test()[0]

    async def live(n: int) -> None:
        controller = await started(machine, a_task(machine, RUNS, task_id=f"t{n:024}"))
        await controller.renew_lease(100)
        await controller.stop()
        await controller.remove()

    async with trio.open_nursery() as nursery:
        for n in range(40):
            nursery.start_soon(live, n)
    assert descriptors_and_threads()[0] == before


async def test_shutdown_of_the_host_stops_the_task(machine: ProcessMachine) -> None:
    """A shim that gets SIGTERM, as all processes do at shutdown, stops its task in order."""
    command = ("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    controller = await started(machine, a_task(machine, command=command))
    os.kill(machine.processes()[0], signal.SIGTERM)
    assert (await controller.wait()).code == 0
    assert machine.log().endswith("bye\n")
    await controller.remove()
