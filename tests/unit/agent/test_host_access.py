"""The step of host access by itself, where its calls overlap."""

from __future__ import annotations

import msgspec

from beeyard.agent.host_access import HostAccessStep
from beeyard.core.model import Link
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import attach
from beeyard.runtime.fake_executor import FakeExecutor, FakeTasks
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import Controller
from tests.support.agent_tasks import a_grant, an_assigned

ETH0 = Link(name="eth0", mtu=1500, up=True, addresses=("10.77.0.2/24",))


def a_task(number: int) -> AssignedTask:
    grant = msgspec.structs.replace(a_grant(f"10.77.0.{number}/24"), host_access=True)
    return msgspec.structs.replace(an_assigned(f"t{number}", slot=number), grants=(grant,))


async def test_settling_leaves_the_way_to_a_task_that_is_attached_meanwhile():
    """The first set of a manager may bring a new task, while what former tasks have left is looked for."""
    kernel = FakeKernel((ETH0,), seed="n1")
    executor = FakeExecutor(kernel, FakeTasks(kernel))
    step = HostAccessStep(kernel)

    async def made(task: AssignedTask) -> Controller:
        controller = await executor.create(task)
        await controller.prepare()
        await attach(kernel, controller.netns, task.grants[0], "eth0")
        return controller

    one, two = a_task(64), a_task(65)
    await step.attached(one, await made(one))
    second, request = await made(two), kernel.request

    async def late(message: bytes, netns: str = "") -> list[bytes]:
        kernel.request = request
        await step.attached(two, second)
        return await request(message, netns)

    kernel.request = late
    await step.settle()
    assert [way[0] for way in kernel.ways_of("")] == ["10.77.0.64/32", "10.77.0.65/32"]
