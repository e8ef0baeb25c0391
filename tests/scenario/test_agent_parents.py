"""What an agent makes beside its tasks' links: VLAN sub-interfaces and host-side links, made once and taken away in time."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.agent.command import take_back
from beeyard.agent.routes import RouteKeeper
from beeyard.core.errors import NetlinkError
from beeyard.core.model import Link
from beeyard.core.network_options import Vlan
from beeyard.core.states import TaskState
from beeyard.core.wire import HostRoute, Routes
from beeyard.netdrivers import attach, codec, host_access, vlan
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import RequestRefused
from tests.support.agent_machine import STATE_DIR, Machine
from tests.support.agent_tasks import a_grant, an_assigned

KINDS = ("ipvlan", "macvlan", "vlan")
SETTLE_S = 5.0


@pytest.fixture
async def machine() -> Machine:
    """One whose kernel has all kinds of link, with eth0 and eth1."""
    machine = Machine()
    links = (
        Link(name="eth0", mtu=1500, up=True, addresses=("10.77.0.2/24",)),
        Link(name="eth1", mtu=1500, up=True),
    )
    machine.kernel = machine.tasks.kernel = FakeKernel(links, KINDS, seed="n1")
    await machine.make_member()
    return machine


def a_task(task_id: str, number: int, *, desired: TaskState = TaskState.RUNNING, **changes):
    """A task of its own slot with address 10.77.0.NUMBER and a changed grant."""
    grant = msgspec.structs.replace(a_grant(f"10.77.0.{number}/24"), **changes)
    task = an_assigned(task_id, slot=number, desired=desired)
    return msgspec.structs.replace(task, grants=(grant,))


def stopped(task):
    """The same task, no longer wanted."""
    return msgspec.structs.replace(task, desired_state=TaskState.SHUTDOWN)


def host_links_of(machine: Machine) -> list[str]:
    """Links of the host besides its own."""
    return sorted(link.name for link in machine.kernel.links_of("") if link.name not in ("lo", "eth0", "eth1"))


async def until_running(manager, *tasks) -> None:
    for task in tasks:
        await manager.until_state(task.id, TaskState.RUNNING)


# --- VLANs -----------------------------------------------------------------------------------------------------------


async def test_a_vlan_exists_while_a_task_needs_it(machine, autojump_clock):
    """Two tasks that come at once find one; it goes with the last, and a later task gets it again."""
    one, two = (a_task(f"t{n}", n, parent="eth0.100") for n in (64, 65))
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [one, two])
        await until_running(manager, one, two)
        assert host_links_of(machine) == ["eth0.100"]
        assert sorted(machine.addresses_up()) == ["10.77.0.64", "10.77.0.65"]
        assert {live.vlan_id for live in machine.kernel.live_addresses() if live.netns} == {100}
        await manager.assign(stopped(one))
        await manager.until_state(one.id, TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100"]
        await manager.assign(stopped(two))
        await manager.until_state(two.id, TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == []
        three = a_task("t66", 66, parent="eth0.100")
        await manager.assign(three)
        await until_running(manager, three)
        assert host_links_of(machine) == ["eth0.100"]


async def test_a_vlan_of_the_operator_stays(machine, autojump_clock):
    base = machine.kernel.links_of("")[1].index
    await machine.kernel.request(codec.create_vlan(name="eth0.100", parent=base, vlan_id=100, group=0))
    machine.kernel.set_link_up("eth0.100", True)
    task = a_task("t64", 64, parent="eth0.100")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await until_running(manager, task)
        await manager.assign(stopped(task))
        await manager.until_state(task.id, TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100"]


async def test_a_restarted_agent_knows_its_vlans(machine, autojump_clock):
    """One that a task needs stays until that task ends; one whose task is gone goes at the first word of a manager."""
    kept, lost = a_task("t64", 64, parent="eth0.100"), a_task("t65", 65, parent="eth0.200")
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [kept, lost])
        await until_running(manager, kept, lost)
    await machine.lose_record(lost.id)
    assert host_links_of(machine) == ["eth0.100", "eth0.200"]
    async with machine.agent() as nursery:
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100", "eth0.200"], "before a manager has spoken nothing is taken away"
        manager = await machine.net.accept()
        await manager.welcome(nursery, [kept])
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100"]
        assert machine.addresses_up() == ["10.77.0.64"]
        await manager.assign(stopped(kept))
        await manager.until_state(kept.id, TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == []


async def test_a_vlan_stays_for_a_task_without_a_record_that_a_manager_still_wants(machine, autojump_clock):
    """Its record is lost; a known task of the same VLAN ends before the manager names it."""
    known, lost = (a_task(f"t{n}", n, parent="eth0.100") for n in (64, 65))
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [known, lost])
        await until_running(manager, known, lost)
    await machine.lose_record(lost.id)
    machine.tasks.by_id[known.id].finish(0)
    async with machine.agent() as nursery:
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100"]
        manager = await machine.net.accept()
        await manager.welcome(nursery, [known, lost])
        await trio.sleep(SETTLE_S)
        assert host_links_of(machine) == ["eth0.100"]
        assert machine.addresses_up() == ["10.77.0.65"]


async def test_a_vlan_that_cannot_be_made_rejects_the_task(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [a_task("t64", 64, parent="eth7.100")])
        rejected = await manager.until_state("t64", TaskState.REJECTED)
        assert rejected.err.startswith("create eth7.100: it does not exist and neither does eth7")


@pytest.mark.parametrize("n", range(1, 8))
async def test_whatever_fails_while_a_vlan_is_made_it_can_be_tried_again_or_taken_away(n):
    """The Nth request to the kernel fails; there are seven."""
    wanted = Vlan("eth0.100", "eth0", 100)
    for again in (True, False):
        kernel = FailingKernel(fail_at=n)
        with pytest.raises(NetlinkError, match="no buffer space"):
            await vlan.ensure(kernel, wanted)
        if again:
            await vlan.ensure(kernel, wanted)
            assert await vlan.ours(kernel) == ["eth0.100"]
            assert kernel.links_of("")[2].up
        await vlan.remove(kernel, "eth0.100")
        assert len(kernel.links_of("")) == 2


class FailingKernel(FakeKernel):
    """A kernel that refuses the Nth request."""

    def __init__(self, *, fail_at: int) -> None:
        super().__init__([Link(name="eth0", mtu=1500, up=True, addresses=("10.77.0.2/24",))], KINDS)
        self._left = fail_at

    def fail_at(self, n: int) -> None:
        """The Nth request from now on."""
        self._left = n

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        replies: list[bytes] = []
        for position, part in enumerate(nl.split(message)):
            self._left -= 1
            if self._left == 0:
                error = RequestRefused(105, "no buffer space")
                error.position = position
                raise error
            replies += await super().request(nl.message(part.type, part.flags, part.payload), netns)
        return replies


# --- links that would disturb others ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            {"driver": "ipvlan", "mode": "l2"},
            {"driver": "ipvlan", "mode": "l3"},
            "use parent eth1: task t64 has ipvlan in mode l2 on it, which excludes ipvlan in mode l3; "
            "use another parent or the same mode",
        ),
        (
            {"driver": "ipvlan", "mode": "l2", "flag": "private"},
            {"driver": "ipvlan", "mode": "l2"},
            "use parent eth1: task t64 has ipvlan in mode l2 and flag private on it, which excludes ipvlan in mode l2; "
            "use another parent or the same mode",
        ),
        (
            {"mode": "passthru"},
            {"mode": "passthru"},
            "use parent eth1: task t64 has macvlan in mode passthru on it, which excludes macvlan in mode passthru; "
            "use another parent or the same mode",
        ),
        (
            {"mode": "private"},
            {"driver": "ipvlan", "mode": "l2"},
            "use parent eth1: task t64 has macvlan on it, which excludes ipvlan in mode l2; "
            "use another parent or the same mode",
        ),
    ],
)
async def test_a_link_that_would_disturb_another_task_is_refused(machine, autojump_clock, first, second, words):
    """The first task is not touched, and when it is over the second one's like may have the parent."""
    one, two, three = (
        a_task(f"t{n}", n, parent="eth1", **changes) for n, changes in ((64, first), (65, second), (66, second))
    )
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [one])
        await until_running(manager, one)
        mode = machine.kernel.links_of(machine.tasks.by_id["t64"].netns)[1].mode
        await manager.assign(two)
        rejected = await manager.until_state("t65", TaskState.REJECTED)
        assert rejected.err == words
        assert machine.kernel.links_of(machine.tasks.by_id["t64"].netns)[1].mode == mode
        await manager.assign(stopped(one))
        await manager.until_state("t64", TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        await manager.assign(three)
        await until_running(manager, three)


# --- host access -----------------------------------------------------------------------------------------------------


async def test_host_access_lasts_as_long_as_its_tasks(machine, autojump_clock):
    """One host-side link for all tasks of a parent; a task without the option gets no way; nothing is left."""
    one, two = (a_task(f"t{n}", n, host_access=True) for n in (64, 65))
    plain = a_task("t66", 66)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [one, two, plain])
        await until_running(manager, one, two, plain)
        assert host_links_of(machine) == ["bee-eth0"]
        assert sorted(machine.kernel.ways_of("")) == [
            ("10.77.0.64/32", "bee-eth0", "", "10.77.0.2"),
            ("10.77.0.65/32", "bee-eth0", "", "10.77.0.2"),
        ]
        assert [name for name, *_ in machine.kernel.neighbours_of(machine.tasks.by_id["t66"].netns)] == []
        assert [address for _, address, _ in machine.kernel.neighbours_of(machine.tasks.by_id["t64"].netns)] == [
            "10.77.0.2"
        ]
        await manager.assign(stopped(one))
        await manager.until_state("t64", TaskState.SHUTDOWN)
        assert [destination for destination, *_ in machine.kernel.ways_of("")] == ["10.77.0.65/32"]
        await manager.assign(stopped(two))
        await manager.until_state("t65", TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert (host_links_of(machine), machine.kernel.ways_of("")) == ([], [])


async def test_a_restarted_agent_forgets_the_ways_of_tasks_that_are_gone(machine, autojump_clock):
    kept, lost = (a_task(f"t{n}", n, host_access=True) for n in (64, 65))
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [kept, lost])
        await until_running(manager, kept, lost)
    await machine.lose_record(lost.id)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [kept])
        await trio.sleep(SETTLE_S)
        assert machine.kernel.ways_of("") == [("10.77.0.64/32", "bee-eth0", "", "10.77.0.2")]
        await manager.assign(stopped(kept))
        await manager.until_state("t64", TaskState.SHUTDOWN)
        await trio.sleep(SETTLE_S)
        assert await host_access.ours(machine.kernel) == []


async def test_a_purge_takes_away_what_the_host_got_for_tasks(machine, autojump_clock):
    """Its tasks are gone and no agent will come back: VLAN, host-side link, ways and routes go, and nothing of others."""
    seen, tagged = a_task("t64", 64, host_access=True), a_task("t65", 65, parent="eth0.100")
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [seen, tagged])
        await until_running(manager, seen, tagged)
    keeper = RouteKeeper(machine.kernel)
    keeper.take(Routes(complete=True, routes=(HostRoute(destination="10.8.0.3/32", via="10.77.0.3", parent="eth0"),)))
    await keeper.settle()
    base = machine.kernel.links_of("")[1].index
    await machine.kernel.request(codec.create_vlan(name="eth0.200", parent=base, vlan_id=200, group=0))
    for task in machine.tasks.by_id.values():
        task.drop()
    assert host_links_of(machine) == ["bee-eth0", "eth0.100", "eth0.200"]
    assert [way[0] for way in machine.kernel.ways_of("")] == ["10.77.0.64/32", "10.8.0.3/32"]
    await take_back(machine.host(), STATE_DIR)
    assert host_links_of(machine) == ["eth0.200"]
    assert machine.kernel.ways_of("") == []


async def test_host_access_that_cannot_be_rejects_the_task(machine, autojump_clock):
    """In another mode before anything is made; on a parent without an address of the host after its link was."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        tasks = [a_task("t64", 64, host_access=True, mode="vepa"), a_task("t65", 65, host_access=True, parent="eth1")]
        await manager.welcome(nursery, tasks)
        rejected = [await manager.until_state(task.id, TaskState.REJECTED) for task in tasks]
        assert "host access is for macvlan mode bridge and this is macvlan mode vepa" in rejected[0].err
        assert "the host has no address on eth1 to which 10.77.0.65/24 could speak" in rejected[1].err
        await trio.sleep(SETTLE_S)
        assert (host_links_of(machine), machine.addresses_up(), machine.kernel.namespaces) == ([], [], ())


@pytest.mark.parametrize("n", range(1, 13))
async def test_whatever_fails_while_host_access_is_made_it_can_be_undone_or_tried_again(n):
    """The Nth request to the kernel fails; there are twelve."""
    for again in (True, False):
        kernel = FailingKernel(fail_at=0)
        netns, grant = kernel.create_netns(), a_grant()
        await attach(kernel, netns, grant, "eth0")
        kernel.fail_at(n)
        with pytest.raises(NetlinkError, match="no buffer space"):
            await host_access.connect(kernel, netns, grant, "eth0")
        if again:
            await host_access.connect(kernel, netns, grant, "eth0")
            assert [destination for destination, *_ in kernel.ways_of("")] == ["10.77.0.64/32"]
        await host_access.disconnect(kernel, grant)
        await host_access.remove(kernel, "bee-eth0")
        assert (len(kernel.links_of("")), kernel.ways_of(""), kernel.neighbours_of("")) == (2, [], [])
