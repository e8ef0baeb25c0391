"""The step of published ports by itself, where its calls overlap."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from beeyard.agent.ports import PortStep
from beeyard.core.grant import MappedPort
from beeyard.netdrivers import port_link
from beeyard.runtime.fake_executor import FakeExecutor, FakeTasks
from beeyard.runtime.fake_firewall import FakeFirewall
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.agent_tasks import an_assigned


class HeldUpFirewall(FakeFirewall):
    """One that takes its time with a task's namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = trio.Event(), trio.Event()

    async def answer_from(self, netns: str, interface: str, addresses: Sequence[str]) -> None:
        self.asked.set()
        await self.goes_on.wait()
        await super().answer_from(netns, interface, addresses)


async def test_settling_leaves_the_link_of_a_task_that_is_being_attached():
    """The first set of a manager may bring a new task, while what former tasks have left is looked for."""
    kernel, firewall = FakeKernel(seed="n1"), HeldUpFirewall()
    step = PortStep(kernel, firewall, firewall, "/state")
    task = an_assigned(ports=[MappedPort(protocol="udp", published=5353, target=53)])
    controller = await FakeExecutor(kernel, FakeTasks(kernel)).create(task)
    await controller.prepare()
    await step.before(task)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(step.attached, task, controller)
        await firewall.asked.wait()
        await step.settle()
        firewall.goes_on.set()
    (link,) = [link for link in kernel.links_of("") if link.name.startswith(port_link.HOST_PREFIX)]
    assert [f.published for f in firewall.leads()] == [5353] * len(link.addresses)
