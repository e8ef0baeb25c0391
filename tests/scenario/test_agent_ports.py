"""Published ports on a node: they lead to their task from before its command runs until before its end is known."""

from __future__ import annotations

import errno
import zlib

import msgspec
import pytest
import trio

from beeyard.agent.ports import WATCH_S
from beeyard.core.grant import MappedPort
from beeyard.core.model import HostPort
from beeyard.core.states import TaskState
from beeyard.core.wire import DescriptionChanged
from beeyard.netdrivers import port_link
from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.host import Forward
from tests.support.agent_machine import STATE_DIR, Machine
from tests.support.agent_tasks import an_assigned

ADDRESS = "10.77.0.64/24"
WEB = MappedPort(published=8080, target=80)
DNS = MappedPort(protocol="udp", published=5353, target=53)


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


def leads(machine: Machine) -> list[tuple[str, int, int]]:
    """(protocol, port of the node, port of the task), each of which must lead to a link that is up, in both families."""
    up = {
        str(address.ip): netns
        for netns in machine.kernel.namespaces
        for link in machine.kernel.links_of(netns)
        if link.name == "port0" and link.up
        for address in link.addresses
    }
    forwards = machine.firewall.leads()
    assert [forward for forward in forwards if forward.address not in up] == [], "a port leads nowhere"
    four = [(f.protocol, f.published, f.target) for f in forwards if ":" not in f.address]
    assert four == [(f.protocol, f.published, f.target) for f in forwards if ":" in f.address]
    return four


def port_links(machine: Machine) -> list[str]:
    return [link.name for link in machine.kernel.links_of("") if link.name.startswith("byp")]


async def test_ports_lead_to_the_task_from_before_it_runs_until_before_its_end_is_known(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(start_s=5)
    task = an_assigned(address=ADDRESS, ports=[WEB, DNS])
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.STARTING)
        assert leads(machine) == [("tcp", 8080, 80), ("udp", 5353, 53)]
        assert machine.firewall.forgotten == machine.firewall.leads(), "flows that began before are ended"
        await manager.until_state("t1", TaskState.RUNNING)
        machine.firewall.fails = "nft: Device or resource busy"
        await manager.assign(msgspec.structs.replace(task, desired_state=TaskState.SHUTDOWN))
        await trio.sleep(30)
        assert manager.status("t1").state is TaskState.RUNNING, "no end is known while its ports may lead to it"
        machine.firewall.fails = ""
        await manager.until_state("t1", TaskState.SHUTDOWN)
        assert machine.firewall.tables == {}
        await trio.sleep(1)
        assert port_links(machine) == []


async def test_only_a_task_that_publishes_udp_gets_a_way_out_for_answers_without_an_address(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB]), an_assigned("t2", slot=2, ports=[DNS])])
        for task_id in ("t1", "t2"):
            await manager.until_state(task_id, TaskState.RUNNING)
        netns = {task_id: machine.tasks.by_id[task_id].netns for task_id in ("t1", "t2")}
        assert machine.kernel.routes_of(netns["t1"]) == []
        assert [interface for interface, _, _ in machine.kernel.routes_of(netns["t2"])] == ["port0", "port0"]
        assert list(machine.firewall.answering) == [netns["t2"]]


async def test_a_task_with_the_nodes_own_network_binds_its_ports_itself(machine, autojump_clock):
    same = MappedPort(published=8080, target=8080)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(ports=[same], on_host_network=True)])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.firewall.foreign[HostPort(port=8080)] = "the task"
        assert (machine.firewall.tables, port_links(machine)) == ({}, [])
        await trio.sleep(120)
        told = [message.description.listening for message in manager.of(DescriptionChanged)]
        assert told == [], "what the task itself has is not foreign"


async def test_a_port_that_something_else_has_refuses_the_task_by_name_and_is_told_at_once(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery)
        await trio.sleep(6)
        machine.firewall.foreign[HostPort(port=8080)] = "nginx (pid 812)"
        await manager.assign(an_assigned(ports=[WEB]))
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert end.err == "port 8080/tcp of this node is in use by nginx (pid 812)"
        await trio.sleep(1)
        assert [m.description.listening for m in manager.of(DescriptionChanged)] == [(HostPort(port=8080),)]
        assert machine.kernel.namespaces == ()


async def test_a_node_without_nftables_says_so_and_refuses_by_the_package(machine, autojump_clock):
    machine.firewall.missing = "the command nft is missing; install the package nftables"
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        hello = await manager.welcome(nursery, [an_assigned("t1", ports=[WEB]), an_assigned("t2", slot=2)])
        assert not hello.description.forwards_ports
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert end.err == "publish ports: the command nft is missing; install the package nftables"
        await manager.until_state("t2", TaskState.RUNNING)
        await manager.assign(an_assigned("t2", slot=2, desired=TaskState.SHUTDOWN))
        await manager.until_state("t2", TaskState.SHUTDOWN)


async def test_a_successor_waits_for_the_port_of_a_task_that_stops(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(stop_s=5)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB])])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.assign(an_assigned("t2", slot=2, ports=[WEB]))
        end = await manager.until_state("t2", TaskState.REJECTED)
        assert end.err == "port 8080/tcp is in use on this node by task t1"
        await manager.assign(an_assigned("t1", ports=[WEB], desired=TaskState.SHUTDOWN))
        await manager.assign(an_assigned("t3", slot=3, ports=[WEB]))
        await manager.until_state("t3", TaskState.RUNNING)
        assert manager.status("t1").state is TaskState.SHUTDOWN
        assert leads(machine) == [("tcp", 8080, 80)]


async def bring_up(machine: Machine, *tasks) -> None:
    """A life of the agent in which tasks come to run; then it is killed."""
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, tasks)
        for task in tasks:
            await manager.until_state(task.id, TaskState.RUNNING)


async def test_a_killed_agent_finds_its_ports_again_and_takes_away_those_of_nobody(machine, autojump_clock):
    kept, gone = an_assigned("t1", ports=[WEB]), an_assigned("t2", slot=2, ports=[DNS])
    await bring_up(machine, kept, gone)
    before = machine.firewall.leads()
    assert leads(machine) == [("tcp", 8080, 80), ("udp", 5353, 53)]
    machine.tasks.by_id["t2"].drop()
    await machine.lose_record("t2")
    netns = machine.kernel.create_netns()  # of a container that somebody keeps, say
    instance = f"{zlib.crc32(STATE_DIR.encode()):08x}"
    ghost = await port_link.attach(machine.kernel, netns, instance, "ghost", answers_unbound=False)
    assert ghost.host_interface in port_links(machine)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await trio.sleep(5)
        assert machine.firewall.leads() == before, "nothing is touched before everybody is known"
        await manager.welcome(nursery, [kept])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(1)
        assert leads(machine) == [("tcp", 8080, 80)]
        assert len(port_links(machine)) == 1
        await manager.assign(an_assigned("t1", ports=[WEB], desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
        assert machine.firewall.tables == {}
    assert port_links(machine) == []


async def test_a_task_without_a_record_keeps_its_port_whoever_is_published_first(machine, autojump_clock):
    """Its record is lost, so it is known from the manager's first set alone; another task has read the table by then."""
    ended, kept = an_assigned("t0", slot=9, ports=[MappedPort(published=1, target=1)]), an_assigned("t1", ports=[WEB])
    await bring_up(machine, ended, kept)
    await machine.lose_record("t1")
    machine.tasks.by_id["t0"].finish(0)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await trio.sleep(5)
        assert leads(machine) == [("tcp", 8080, 80)], "the end of the other one was seen to"
        await manager.welcome(nursery, [kept, an_assigned("t2", slot=2, ports=[DNS])])
        await manager.until_state("t2", TaskState.RUNNING)
        await trio.sleep(5)
        assert leads(machine) == [("tcp", 8080, 80), ("udp", 5353, 53)]


async def test_an_end_while_the_agent_was_away_takes_the_ports_away(machine, autojump_clock):
    await bring_up(machine, an_assigned("t1", ports=[WEB]))
    machine.tasks.by_id["t1"].finish(3)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB], state=TaskState.RUNNING)])
        await manager.until_state("t1", TaskState.FAILED)
        assert machine.firewall.tables == {}


async def test_a_table_that_somebody_flushed_is_put_right(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB])])
        await manager.until_state("t1", TaskState.RUNNING)
        for _ in range(3):
            machine.firewall.flush()
            await trio.sleep(1)  # far below WATCH_S: the host tells of it
            assert leads(machine) == [("tcp", 8080, 80)]
        # A firewall that is just being loaded may refuse, and a host may not tell.
        machine.firewall.fails = "nft: Device or resource busy"
        machine.firewall.flush()
        await trio.sleep(5)
        assert leads(machine) == []
        machine.firewall.fails = ""
        await trio.sleep(2 * WATCH_S)
        assert leads(machine) == [("tcp", 8080, 80)]
        machine.firewall.tables.clear()
        await trio.sleep(WATCH_S + 1)
        assert leads(machine) == [("tcp", 8080, 80)]


async def test_a_table_that_somebody_altered_is_made_anew(machine, autojump_clock):
    """What it forwards may be right, and what it restricts not: as soon as the host tells, and whoever has made it."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB])])
        await manager.until_state("t1", TaskState.RUNNING)
        (table,) = machine.firewall.tables
        machine.firewall.alter(table)
        await trio.sleep(1)  # far below WATCH_S
        assert not machine.firewall.is_altered(table)
        assert leads(machine) == [("tcp", 8080, 80)]
        nursery.cancel_scope.cancel()
    machine.firewall.alter(table)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB])])
        await trio.sleep(1)
        assert not machine.firewall.is_altered(table)


async def test_a_change_that_fails_when_the_table_is_made_leaves_no_port_behind(machine, autojump_clock):
    machine.firewall.fails_late = "write /proc/sys/net/ipv4/conf/eth0/forwarding: Read-only file system"
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(ports=[WEB])])
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert end.err == "publish ports: write /proc/sys/net/ipv4/conf/eth0/forwarding: Read-only file system"
        assert machine.firewall.tables == {}


async def test_other_agents_on_the_host_are_left_alone(machine, autojump_clock):
    other = (Forward(protocol="tcp", published=9999, address="169.254.192.1", target=80),)
    machine.firewall.tables["beeyard-other"] = other
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", ports=[WEB])])
        await manager.until_state("t1", TaskState.RUNNING)
        await manager.assign(an_assigned("t1", ports=[WEB], desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
    assert machine.firewall.tables == {"beeyard-other": other}


@pytest.mark.parametrize("nth", range(1, 18))
async def test_whichever_request_the_kernel_refuses_nothing_is_left_behind(machine, autojump_clock, nth):
    """Nth-call faults of netlink while a port link is made: the task is rejected whole, or runs whole."""
    request, n_calls = machine.kernel.request, 0

    async def failing(message: bytes, netns: str = "") -> list[bytes]:
        nonlocal n_calls
        n_calls += 1
        if n_calls == nth:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        return await request(message, netns)

    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery)
        await trio.sleep(1)
        machine.kernel.request = failing
        await manager.assign(an_assigned(ports=[WEB, DNS]))
        await manager.until(lambda: manager.status("t1").state >= TaskState.RUNNING)
        await trio.sleep(1)
        if manager.status("t1").state is TaskState.REJECTED:
            assert (leads(machine), port_links(machine), machine.kernel.namespaces) == ([], [], ())
        else:
            assert manager.status("t1").state is TaskState.RUNNING
            assert leads(machine) == [("tcp", 8080, 80), ("udp", 5353, 53)]
