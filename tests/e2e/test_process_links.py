"""A task of the process executor leaves the LAN: asked from outside, whoever takes its links down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.netdrivers import attach, codec
from beeyard.runtime.host import Controller
from beeyard.runtime.real_netlink import RealNetlink
from tests.support.executor_machine import a_task
from tests.support.grants import a_grant
from tests.support.netns import Lan, inside
from tests.support.process_machine import ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns

IPV4, IPV6 = "10.9.0.10", "fd00:9::10"


class TaskOnALan:
    """A task that has both addresses on a LAN."""

    def __init__(self, lan: Lan, machine: ProcessMachine, netlink: RealNetlink, controller: Controller) -> None:
        self.machine = machine
        self.controller = controller
        self._lan = lan
        self._netlink = netlink

    async def answers(self) -> list[str]:
        """Its addresses that answer from outside."""
        found = [IPV4] if await self._lan.arp(IPV4) else []
        return [*found, IPV6] if await self._lan.refuses(IPV6) else found

    async def link(self) -> tuple[bool, list[str]]:
        """Whether its link is up, and the addresses that it has."""
        netns = self.controller.netns
        links = codec.read_links(await self._netlink.request(codec.dump_links(), netns))
        (eth0,) = [link for link in links if not link.loopback]
        addresses = codec.read_addresses(await self._netlink.request(codec.dump_addresses(), netns))
        return eth0.up, [str(a.ip) for a in addresses if a.index == eth0.index]

    async def until_it_has_no_address(self) -> None:
        """Nobody is asked to do anything."""
        with trio.fail_after(20):
            while (await self.link())[1]:  # noqa: ASYNC110 - a kernel sends no event
                await trio.sleep(0.02)


@contextlib.asynccontextmanager
async def a_task_on_a_lan(*, started: bool = True) -> AsyncIterator[TaskOnALan]:
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)), contextlib.closing(RealNetlink()) as netlink:
        async with a_process_machine() as machine:
            controller = await machine.executor.create(a_task(machine))
            await controller.prepare()
            await attach(netlink, controller.netns, a_grant(f"{IPV4}/24", f"{IPV6}/64"), "eth0")
            if started:
                await controller.start()
            task = TaskOnALan(lan, machine, netlink, controller)
            assert await task.answers() == [IPV4, IPV6]
            yield task
            await controller.remove()
            assert await machine.leftovers() == []


# A macvlan link that is set down makes every other network change of the host wait for 16 ms, so it stays up: deaf.
GONE = (True, [])


async def test_links_down_silences_a_task_without_setting_its_link_down() -> None:
    """On return nothing answers, and the task has no address left that it could speak from; again is fine."""
    async with a_task_on_a_lan() as task:
        for _ in range(2):
            await task.controller.links_down()
            assert await task.link() == GONE
            assert await task.answers() == []
        assert task.controller.phase == "started"


async def test_a_task_whose_shim_cannot_start_it_is_silent_when_its_links_are_said_to_be_down() -> None:
    """The shim fails before there is a program, as on a full disk: the end of the task is reported behind `links_down`."""
    async with a_task_on_a_lan(started=False) as task:
        controller = task.controller
        os.mkdir(f"{task.machine.executor.places.shim_dir(controller.task_id)}/exit.json")
        with pytest.raises(ExecutorError, match="Is a directory"):
            await controller.start()
        await controller.links_down()
        assert await task.link() == GONE
        assert await task.answers() == []
        with trio.fail_after(20), pytest.raises(ExecutorError, match="never started"):
            await controller.wait()


async def test_a_task_whose_lease_lapsed_before_it_started_is_over() -> None:
    """Who asks how it ended, as its node hooks are told, is answered at once."""
    async with a_task_on_a_lan(started=False) as task:
        await task.controller.renew_lease(0.05)
        await task.until_it_has_no_address()
        with pytest.raises(ExecutorError, match="the lease lapsed before the task started"):
            await task.controller.start()
        with trio.fail_after(20), pytest.raises(ExecutorError, match="never started"):
            await task.controller.wait()


async def test_a_lapsed_lease_silences_a_task_in_the_same_way() -> None:
    """The shim does it by itself."""
    async with a_task_on_a_lan() as task:
        await task.controller.renew_lease(0.1)
        await task.until_it_has_no_address()
        assert await task.link() == GONE
        assert await task.answers() == []


async def test_the_agent_silences_a_task_whose_shim_was_killed() -> None:
    """Somebody still holds the namespace: it must not answer until the kernel has cleaned up."""
    async with a_task_on_a_lan() as task:
        assert "eth0" in await task.machine.ip(task.controller, "-o", "link")  # holds the namespace from here on
        await task.machine.kill_shim(task.controller.task_id)
        await task.controller.links_down()
        assert await task.answers() == []
        shown = await task.machine.ip(task.controller, "-o", "address", "show", "dev", "eth0")
        assert shown == ""
