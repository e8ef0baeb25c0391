"""An agent stays connected, misses nothing, and never believes in more contact than there was."""

from __future__ import annotations

import itertools

import pytest
import trio

from beeyard.core.errors import PeerRefused
from beeyard.core.model import Link
from beeyard.core.states import TaskState
from beeyard.core.wire import (
    Assignments,
    DescriptionChanged,
    Heartbeat,
    Hello,
    IdentityReply,
    Refused,
    RenewRequest,
    Resync,
    StatusReport,
    Welcome,
)
from beeyard.runtime.fake_executor import Behaviour
from tests.support.agent_machine import STATE_DIR, Machine
from tests.support.agent_tasks import an_assigned
from tests.support.scripted_manager import MANAGER

ADDRESS = "10.77.0.64/24"
OTHER = "tcp://10.0.0.2:2377"


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


async def test_hello_describes_the_host(machine, autojump_clock):
    async with machine.agent() as nursery:
        hello = await (await machine.net.accept()).welcome(nursery)
        description = hello.description
        assert (description.hostname, description.platform.architecture, description.platform.os) == (
            "n1",
            "x86_64",
            "linux",
        )
        assert (description.resources.cpu_nano, description.resources.memory_bytes) == (4 * 10**9, 8 << 30)
        assert description.images == ("host",)
        assert [link.name for link in description.links] == ["eth0"]
        assert description.link_kinds == ("macvlan",)


async def test_a_changed_host_is_described_anew_and_an_unchanged_one_is_not(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery)
        await trio.sleep(100)
        assert manager.of(DescriptionChanged) == []
        machine.kernel.add_link(Link(name="eth1", mtu=1500, up=True))
        await trio.sleep(20)
        assert [[link.name for link in m.description.links] for m in manager.of(DescriptionChanged)] == [
            ["eth0", "eth1"]
        ]


@pytest.mark.parametrize("away_s", [0.1, 60])
async def test_a_task_whose_parent_was_removed_says_so(machine, autojump_clock, away_s):
    """Once, and only the one that had a link on it; a new interface of that name, however soon, does not bring it back."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1, address=ADDRESS), an_assigned("t2", slot=2)])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.kernel.add_link(Link(name="eth1", mtu=1500, up=True))
        await trio.sleep(60)
        machine.kernel.remove_link("eth0")
        await trio.sleep(away_s)
        machine.kernel.add_link(Link(name="eth0", mtu=1500, up=True))
        await trio.sleep(60)
        last = manager.reports_of("t1")[-1]
        assert (last.state, last.message, last.err) == (
            TaskState.RUNNING,
            "started",
            "its link is gone: parent eth0 was removed",
        )
        assert last.pid == machine.tasks.by_id["t1"].pid
        assert [status.err for status in manager.reports_of("t1")].count(last.err) == 1
        assert manager.status("t2").err == ""


async def test_a_parent_that_was_renamed_is_not_gone(machine, autojump_clock):
    """Nor when another interface has its name by now; the task's link is on the one that it was made on."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(30)
        machine.kernel.rename_link("eth0", "lan9")
        await trio.sleep(30)
        machine.kernel.add_link(Link(name="eth0", mtu=1500, up=True))
        await trio.sleep(30)
        assert manager.reports_of("t1")[-1].err == ""
        machine.kernel.remove_link("lan9")
        await trio.sleep(30)
        assert manager.reports_of("t1")[-1].err == "its link is gone: parent eth0 was removed"


async def test_heartbeats_are_numbered_and_keep_the_interval_of_the_welcome(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, heartbeat_s=3.0)
        await trio.sleep(31)
        beats = [(at_s, m.number) for at_s, m in manager.heard if isinstance(m, Heartbeat)]
        assert [number for _, number in beats] == list(range(1, len(beats) + 1))
        assert 0 <= beats[0][0] <= 3.1
        assert [round(later[0] - earlier[0], 3) for earlier, later in itertools.pairwise(beats)] == [3.0] * 9


@pytest.mark.parametrize("way", ["hangs up", "is silent", "sends garbage", "refuses for now", "never welcomes"])
async def test_whatever_a_manager_does_a_new_session_is_opened(machine, autojump_clock, way):
    async with machine.agent(managers=(MANAGER, OTHER)) as nursery:
        manager = await machine.net.accept()
        if way == "never welcomes":
            await manager.hear()
        else:
            await manager.welcome(nursery, [an_assigned()])
            await manager.until_state("t1", TaskState.RUNNING)
        if way == "hangs up":
            await manager.hang_up()
        elif way == "is silent":
            manager.acknowledges = manager.renews = False
        elif way == "sends garbage":
            await manager.stream.send_all(b"\0\0\0\3\xc1\xc1\xc1")
        elif way == "refuses for now":
            await manager.say(Refused(reason="a newer session of node n1 was opened", retry=True))
        second = await machine.net.accept()
        await second.welcome(nursery, [an_assigned(state=TaskState.RUNNING)])
        await second.until_state("t1", TaskState.RUNNING) if way != "never welcomes" else None
        await trio.sleep(1)


async def test_a_quiet_manager_that_answers_when_asked_is_not_left(machine, autojump_clock):
    """Nothing is said for an hour, but confirmations come: the session holds."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        manager.renews = False
        await manager.welcome(nursery)
        await trio.sleep(3600)
        assert len(machine.net.dialled) == 1
        assert [m.reports for m in manager.of(StatusReport)] != []


async def test_silence_is_noticed_after_three_and_a_half_heartbeats(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        manager.acknowledges = manager.renews = False
        await manager.welcome(nursery)
        began_s = trio.current_time()
        await manager.until(lambda: manager.closed)
        assert trio.current_time() - began_s == pytest.approx(17.5, abs=0.1)


async def test_attempts_go_round_the_managers_with_growing_random_waits(machine, autojump_clock):
    machine.net.refusing = {MANAGER: "connection refused", OTHER: "connection refused"}
    async with machine.agent(managers=(MANAGER, OTHER)):
        await trio.sleep(200)
    dials = machine.net.dialled
    assert [address for _, address, _ in dials[:4]] == [MANAGER, OTHER, MANAGER, OTHER]
    waits = [later[0] - earlier[0] for earlier, later in itertools.pairwise(dials)]
    bounds = [min(8.0, 0.2 * 2 ** (1 + n // 2)) / 2 for n in range(len(waits))]  # of two, each as if it were alone
    assert all(0 <= wait <= bound + 0.01 for wait, bound in zip(waits, bounds, strict=True))
    assert max(waits) > 2.5
    assert len(set(waits)) == len(waits)


async def test_a_manager_that_was_learned_is_tried_when_the_first_is_gone(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, managers=(MANAGER, OTHER))
        await trio.sleep(1)
        machine.net.refusing = {MANAGER: "connection refused"}
        await manager.hang_up()
        assert (await machine.net.accept()).address == OTHER


async def test_every_current_status_is_told_to_a_new_session(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1), an_assigned("t2", slot=2)])
        await manager.until_state("t2", TaskState.RUNNING)
        await manager.hang_up()
        machine.tasks.by_id["t2"].finish(0)
        second = await machine.net.accept()
        await second.welcome(nursery, [an_assigned("t1", slot=1), an_assigned("t2", slot=2)])
        await second.until_state("t1", TaskState.RUNNING)
        await second.until_state("t2", TaskState.COMPLETE)


async def test_a_status_is_repeated_to_the_next_session_until_it_is_confirmed(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(run_s=2)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        manager.acknowledges = False
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.COMPLETE)
        await manager.assign(removed=("t1",))
        await manager.hang_up()
        second = await machine.net.accept()
        await second.welcome(nursery)
        await second.until_state("t1", TaskState.COMPLETE)
        await second.hang_up()
        third = await machine.net.accept()
        await third.welcome(nursery)
        await trio.sleep(5)
        assert third.reports_of("t1") == []


async def test_a_gap_between_sets_is_answered_by_a_request_for_a_complete_one(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1)])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.assign(an_assigned("t2", slot=2), skip=1)
        await manager.assign(an_assigned("t3", slot=3))
        await trio.sleep(5)
        assert manager.of(Resync) == [Resync(last_seen=1)]
        assert machine.tasks.started == ["t1"], "nothing is applied on top of a set that is missing"
        await manager.assign_all([an_assigned("t2", slot=2)])
        await manager.until_state("t2", TaskState.RUNNING)
        await manager.until_state("t1", TaskState.SHUTDOWN)
        await manager.assign(an_assigned("t4", slot=4))
        await manager.until_state("t4", TaskState.RUNNING)


def a_part(*names: str, more: bool, number: int = 2) -> Assignments:
    tasks = tuple(an_assigned(name, slot=int(name[1:])) for name in names)
    return Assignments(complete=True, applies_to=0, results_in=number, tasks=tasks, more=more)


async def test_a_set_in_parts_is_applied_as_one_when_its_last_part_has_come(machine, autojump_clock):
    """What only a later part names is not stopped by an earlier one."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1), an_assigned("t2", slot=2)])
        await manager.until_state("t2", TaskState.RUNNING)
        await manager.say(a_part("t3", more=True), a_part("t4", more=True))
        await trio.sleep(5)
        assert machine.tasks.started == ["t1", "t2"]
        await manager.say(a_part("t1", more=False))
        await manager.until_state("t2", TaskState.SHUTDOWN)
        await manager.until_state("t4", TaskState.RUNNING)
        assert machine.tasks.started == ["t1", "t3", "t4"]


async def test_parts_of_a_broken_connection_are_forgotten(machine, autojump_clock):
    """The node stays as it is, and the next session's set is made of its own parts alone."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1)])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.say(a_part("t2", more=True))
        await trio.sleep(1)
        await manager.hang_up()
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1)])
        await trio.sleep(5)
        assert machine.tasks.started == ["t1"]
        assert manager.status("t1").state is TaskState.RUNNING


async def test_parts_of_two_sets_that_are_mixed_end_the_session(machine, autojump_clock):
    """Nobody can say what such a set means, so nothing of it is applied."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1)])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.say(a_part("t2", more=True), a_part("t3", more=False, number=3))
        await manager.until(lambda: manager.closed)
        assert machine.tasks.started == ["t1"]


async def test_an_incremental_set_touches_only_what_it_names(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1), an_assigned("t2", slot=2)])
        await manager.until_state("t2", TaskState.RUNNING)
        await manager.assign(removed=("t2", "never-heard-of"))
        await manager.assign()
        await manager.until_state("t2", TaskState.SHUTDOWN)
        await trio.sleep(5)
        assert machine.tasks.started == ["t1"]


@pytest.mark.parametrize(("away_s", "links_first"), [(1.0, False), (30.0, True)])
async def test_after_an_absence_what_must_stop_loses_its_links_first(machine, autojump_clock, away_s, links_first):
    machine.behaviour["t1"] = Behaviour(stop_s=8)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(60)
        machine.net.refusing[MANAGER] = "no route to host"
        await manager.hang_up()
        await trio.sleep(away_s)
        del machine.net.refusing[MANAGER]
        second = await machine.net.accept()
        await second.welcome(nursery, [an_assigned(address=ADDRESS, desired=TaskState.SHUTDOWN)])
        await trio.sleep(1)
        assert machine.tasks.started == ["t1"]
        assert machine.addresses_up() == ([] if links_first else ["10.77.0.64"])
        await second.until_state("t1", TaskState.SHUTDOWN)


# --- the certificate, and being thrown out ---


async def test_the_certificate_is_renewed_between_half_and_four_fifths_of_its_time(machine, autojump_clock):
    await machine.make_member(valid_s=3600.0)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery)
        began_s = trio.current_time()
        await manager.until(lambda: manager.of(RenewRequest) != [], within_s=3600.0)
        assert 0.5 * 3600 <= trio.current_time() - began_s <= 0.8 * 3600
        certificate_pem = machine.sign(manager.of(RenewRequest)[0].csr_pem, valid_s=3600.0)
        await manager.say(
            IdentityReply(node_id="n1", certificate_pem=certificate_pem, ca_certificate_pem=machine.ca_certificate_pem)
        )
        await trio.sleep(60)
        await manager.hang_up()
        await machine.net.accept()
        credentials = machine.net.dialled[-1][2]
        assert credentials is not None
        assert credentials.certificate_pem == certificate_pem


async def test_a_node_that_was_removed_stops_everything_links_first_and_forgets_who_it_was(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(stop_s=8)
    async with machine.ending_agent() as ending:
        manager = await machine.net.accept()
        await manager.welcome(ending.nursery, [an_assigned(address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.say(Refused(reason="node n1 was removed from the cluster", removed=True))
        await trio.sleep(1)
        assert machine.addresses_up() == []
        await trio.sleep(60)
    assert isinstance(ending.error, PeerRefused)
    assert "node n1 was removed from the cluster" in str(ending.error)
    assert machine.tasks.by_id == {}
    assert await machine.files().read(f"{STATE_DIR}/identity") is None
    assert await machine.records() == []


async def test_an_agent_of_another_release_is_sent_away_and_its_tasks_run_on(machine, autojump_clock):
    async with machine.ending_agent() as ending:
        manager = await machine.net.accept()
        await manager.welcome(ending.nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.hang_up()
        second = await machine.net.accept()
        assert isinstance(await second.hear(), Hello)
        await second.say(Refused(reason="run the same release on both"))
        await trio.sleep(60)
    assert isinstance(ending.error, PeerRefused)
    assert "run the same release on both" in str(ending.error)
    assert machine.tasks.started == ["t1"]


async def test_an_agent_that_is_told_to_come_back_later_does_and_its_tasks_run_on(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.hang_up()
        second = await machine.net.accept()
        assert isinstance(await second.hear(), Hello)
        await second.say(Refused(reason="run the same release on both", retry=True, pause_s=60.0))
        told_s = trio.current_time()
        third = await machine.net.accept()
        assert 60.0 <= trio.current_time() - told_s <= 121.0
        await third.welcome(nursery, [an_assigned()])
        await third.until_state("t1", TaskState.RUNNING)
        assert machine.tasks.started == ["t1"]


async def test_a_message_out_of_turn_ends_the_session_alone(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery)
        await manager.say(Welcome(session_id="again", node_id="n1", heartbeat_s=5.0))
        await (await machine.net.accept()).welcome(nursery)
