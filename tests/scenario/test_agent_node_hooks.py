"""Node hooks: called in pairs whatever comes between, they may refuse a task, and add to it what the operator allows."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.agent.hook_policy import HookPolicy
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.states import TaskState
from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.host import Additions, Mount
from beeyard.runtime.sim_hooks import HANGS, HookScript
from tests.support.agent_machine import STATE_DIR, Machine
from tests.support.agent_tasks import an_assigned

FINE = HookScript()
LOG = "/var/log/t1.hooks.log"


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


def at(moment: str, script: HookScript):
    """A hook that does something at one moment, and nothing at the others."""
    return lambda now, document: script if now == moment else FINE


def made(machine: Machine, task_id: str = "t1") -> list[str]:
    return [f"{call.moment} {call.hook}" for call in machine.hooks.calls if call.task_id == task_id]


async def rejected(machine: Machine) -> str:
    """Give the agent one task, see it REJECTED, and give the sentence. Nothing of it may be left."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address="10.77.0.64/24")])
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert machine.tasks.by_id == {}
        assert await machine.files().list(f"{STATE_DIR}/hooks") == []
        return end.err


async def test_each_hook_is_called_at_each_moment_with_the_task(machine, autojump_clock):
    """In the order of names, at stop in the reverse one; each with what is known at that moment."""
    machine.hooks.hooks = {"20-b": lambda *_: FINE, "10-a": lambda *_: FINE}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address="10.77.0.64/24")])
        await manager.until_state("t1", TaskState.RUNNING)
        netns = machine.tasks.by_id["t1"].netns
        machine.tasks.by_id["t1"].finish(3)
        await manager.until_state("t1", TaskState.FAILED)
    assert made(machine) == ["prepare 10-a", "prepare 20-b", "start 10-a", "start 20-b", "stop 20-b", "stop 10-a"]
    prepare, _, start, _, _, stop = machine.hooks.calls
    assert prepare.document["node"] == {"id": "n1", "name": "n1"}
    assert prepare.document["task"]["networks"][0]["addresses"] == ["10.77.0.64/24"]
    assert netns == start.document["netns"] != ""
    assert stop.document["exit_code"] == 3
    assert await machine.files().list(f"{STATE_DIR}/hooks") == []


async def test_what_hooks_add_within_the_list_reaches_the_executor(machine, autojump_clock):
    machine.hook_policy = HookPolicy(
        allow_env=("GPU*",), allow_sysctls=("net.*",), allow_mounts=("/srv",), allow_devices=("/dev/kvm",)
    )
    machine.hooks.add_path("/srv/a", leads_to="/srv/b")
    machine.hooks.add_path("/dev/kvm", "device")
    one = {"env": {"GPU": "0"}, "sysctls": {"net.core.somaxconn": 9}}
    two = {"mounts": [{"source": "/srv/a", "target": "/mnt"}], "devices": ["/dev/kvm"]}
    machine.hooks.hooks = {
        "1": at("prepare", HookScript(answer=one)),
        "2": at("prepare", HookScript(answer=two)),
    }
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
    assert machine.tasks.by_id["t1"].additions == Additions(
        env=("GPU=0",),
        sysctls={"net.core.somaxconn": "9"},
        mounts=(Mount(source="/srv/b", target="/mnt", read_only=True),),
        devices=("/dev/kvm",),
    )


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (
            HookScript(exit_code=1, stderr="looking\nno GPU is free\n"),
            f"node hook gpu refused at prepare: no GPU is free (its output: {LOG})",
        ),
        (
            HookScript(exit_code=7),
            f"node hook gpu refused at prepare: exit code 7 without a message (its output: {LOG})",
        ),
        (HANGS, f"node hook gpu did not answer prepare within 10 s (its output: {LOG})"),
        (
            HookScript(answer={"user": "root"}),
            "node hook gpu answers 'user', which is unknown: env, sysctls, mounts, devices are right",
        ),
        (
            HookScript(answer={"mounts": [{"source": "/etc/shadow", "target": "/mnt"}]}),
            "node hook gpu may not add mount /etc/shadow: the agent's configuration allows mounts of /srv",
        ),
        (
            HookScript(answer={"mounts": [{"source": "/srv/x", "target": "/mnt"}]}),
            "node hook gpu may not add mount '/srv/x': no file or directory of this host has that path",
        ),
        (
            HookScript(answer={"devices": ["/dev/sda"]}),
            "node hook gpu may not add device '/dev/sda': no device of this host has that path",
        ),
        (
            HookScript(answer=b" " * (256 << 10) + b"{}"),
            f"node hook gpu answers more than 256 KiB at prepare (its output: {LOG})",
        ),
    ],
)
async def test_a_refusal_rejects_the_task_and_stop_is_called(machine, autojump_clock, script, sentence):
    """Whatever was wrong, who was called for prepare is called for stop; who was not, is not."""
    machine.hook_policy = HookPolicy(allow_mounts=("/srv",))
    machine.hooks.add_path("/etc/shadow", "file")
    machine.hooks.hooks = {"gpu": at("prepare", script), "later": lambda *_: FINE}
    assert await rejected(machine) == sentence
    assert made(machine) == ["prepare gpu", "stop gpu"]


async def test_the_agents_own_files_cannot_be_mounted_from_where_they_really_are(machine, autojump_clock):
    """An operator moved its state to another disk and allows that disk: the node's key is on it all the same."""
    machine.hook_policy = HookPolicy(allow_mounts=("/data",))
    machine.hooks.add_path(STATE_DIR, "directory", leads_to="/data/beeyard")
    machine.hooks.add_path("/data/beeyard/identity", "file")
    answer = {"mounts": [{"source": "/data/beeyard/identity", "target": "/tmp/identity"}]}
    machine.hooks.hooks = {"gpu": at("prepare", HookScript(answer=answer))}
    assert await rejected(machine) == (
        "node hook gpu may not add mount /data/beeyard/identity: Beeyard keeps its own things in /data/beeyard"
    )


async def test_two_hooks_that_add_the_same_refuse_each_other(machine, autojump_clock):
    machine.hook_policy = HookPolicy(allow_env=("*",))
    script = at("prepare", HookScript(answer={"env": {"A": "1"}}))
    machine.hooks.hooks = {"one": script, "two": script}
    assert await rejected(machine) == "node hook two adds env A, which node hook one adds as well"


async def test_a_hook_that_is_not_safe_refuses_every_task(machine, autojump_clock):
    """No hook is called then, and nothing is left out silently."""
    machine.hooks.hooks = {"gpu": lambda *_: FINE}
    machine.hooks.unsafe = "gpu"
    assert await rejected(machine) == "node hook gpu is not safe to call: others than its owner may not write it"
    assert machine.hooks.calls == []


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (HookScript(exit_code=1, stderr="no"), f"node hook h refused at start: no (its output: {LOG})"),
        (
            HookScript(answer={"env": {"A": "1"}}),
            "node hook h may not add anything at start: prepare is the moment for it",
        ),
    ],
)
async def test_a_refusal_at_start_rejects_the_task(machine, autojump_clock, script, sentence):
    """Its command has not run; links and namespace go."""
    machine.hooks.hooks = {"h": at("start", script)}
    assert await rejected(machine) == sentence
    assert made(machine) == ["prepare h", "start h", "stop h"]
    assert machine.addresses_up() == []


async def test_a_hook_that_fails_at_stop_is_called_again_and_then_given_up(machine, autojump_clock):
    """The end of the task is told all the same, within a bound."""
    machine.hooks.hooks = {"h": at("stop", HANGS), "i": lambda *_: FINE}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.tasks.by_id["t1"].finish(0)
        began_s = trio.current_time()
        await manager.until_state("t1", TaskState.COMPLETE)
        assert trio.current_time() - began_s < 40
    assert made(machine)[4:] == ["stop i", "stop h", "stop h", "stop h"]
    assert await machine.files().list(f"{STATE_DIR}/hooks") == []


async def test_a_hook_that_was_removed_meanwhile_is_not_missed(machine, autojump_clock):
    machine.hooks.hooks = {"h": lambda *_: FINE}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.hooks.hooks = {"new": lambda *_: FINE}
        machine.tasks.by_id["t1"].finish(0)
        began_s = trio.current_time()
        await manager.until_state("t1", TaskState.COMPLETE)
        assert trio.current_time() - began_s < 1
    assert made(machine) == ["prepare h", "start h"]


async def test_a_stop_that_is_wanted_ends_a_hook_that_hangs(machine, autojump_clock):
    machine.hooks.hooks = {"h": at("prepare", HANGS)}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until(lambda: bool(machine.hooks.calls))
        await manager.assign(an_assigned(desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
    assert [call.end for call in machine.hooks.calls] == ["killed", "exit 0"]
    assert made(machine) == ["prepare h", "stop h"]


@pytest.mark.parametrize("still_wanted", [True, False])
async def test_an_agent_killed_in_a_prepare_hook_owes_a_stop(machine, autojump_clock, still_wanted):
    """The next life pays before it prepares anew, and also when nobody wants the task any more."""
    machine.hooks.hooks = {"h": at("prepare", HANGS)}
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until(lambda: bool(machine.hooks.calls))
    machine.hooks.hooks = {"h": at("stop", HookScript(takes_s=2))}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()] if still_wanted else [])
        if still_wanted:
            await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(60)
    expected = ["prepare h", "stop h"]
    assert made(machine) == ([*expected, "prepare h", "start h"] if still_wanted else expected)


async def test_a_task_that_is_prepared_anew_while_others_are_paid_keeps_its_hooks(machine, autojump_clock):
    """The agent was killed with two tasks in a hook; one is gone, the other comes again while the first has its stop."""
    machine.hooks.hooks = {"h": at("prepare", HANGS)}
    tasks = [an_assigned("t0"), an_assigned("t1", slot=2)]
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, tasks)
        await manager.until(lambda: len(machine.hooks.calls) == 2)
    machine.hooks.hooks = {"h": at("stop", HookScript(takes_s=2))}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, tasks[1:])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(60)
    assert made(machine, "t0") == ["prepare h", "stop h"]
    assert made(machine, "t1") == ["prepare h", "stop h", "prepare h", "start h"]


@pytest.mark.parametrize("keeps_record", [True, False])
async def test_a_task_that_ended_while_the_agent_was_away_has_its_stop(machine, autojump_clock, keeps_record):
    """Also one that the agent knows from what it owes alone, and never one that runs on."""
    machine.hooks.hooks = {"h": lambda *_: FINE}
    machine.behaviour["t1"] = Behaviour(run_s=5)
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(), an_assigned("t2", slot=2)])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.until_state("t2", TaskState.RUNNING)
    await trio.sleep(10)
    if not keeps_record:
        await machine.lose_record("t1")
        machine.tasks.by_id.pop("t1")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t2", slot=2)])
        await manager.until(lambda: bool(machine.hooks.made("stop")))
        await trio.sleep(60)
    assert made(machine) == ["prepare h", "start h", "stop h"]
    assert made(machine, "t2") == ["prepare h", "start h"]


async def test_what_is_owed_and_damaged_keeps_no_task_from_anything(machine, autojump_clock):
    await machine.files().replace(f"{STATE_DIR}/hooks/t0", b"\xc1")
    machine.hooks.hooks = {"h": lambda *_: FINE}
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
    assert await machine.files().list(f"{STATE_DIR}/hooks") == ["t1"]


async def test_without_hooks_nothing_is_written(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        assert await machine.files().list(f"{STATE_DIR}/hooks") == []
        assert machine.tasks.by_id["t1"].additions == Additions()


async def test_a_task_on_its_hosts_network_gets_no_network_sysctl(machine, autojump_clock):
    machine.hook_policy = HookPolicy(allow_sysctls=("*",))
    machine.hooks.hooks = {"h": at("prepare", HookScript(answer={"sysctls": {"net.ipv4.ip_forward": "1"}}))}
    task = an_assigned()
    task = msgspec.structs.replace(task, spec=msgspec.structs.replace(task.spec, network_ids=(HOST_NETWORK_ID,)))
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        end = await manager.until_state("t1", TaskState.REJECTED)
    assert end.err == "node hook h may not add sysctl net.ipv4.ip_forward: the task uses its host's network"


async def test_what_was_prepared_has_ended_when_its_refusal_is_told(machine, autojump_clock):
    """Also when it cannot be removed for a while: the room of a task that is over is somebody else's."""
    machine.hooks.hooks = {"10-a": at("start", HookScript(exit_code=1, stderr="no licence"))}
    machine.behaviour["t1"] = Behaviour(fail_at="remove", n_failures=3)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address="10.77.0.64/24")])
        await manager.until_state("t1", TaskState.REJECTED)
        assert machine.tasks.by_id["t1"].phase == "exited"
