"""An agent finds a manager among those it was told of and those it learned of."""

from __future__ import annotations

import random

import pytest

from beeyard.agent.manager_list import ManagerList
from beeyard.runtime.sim_disk import SimDisk, SimFiles
from beeyard.runtime.sim_life import Life, PauseSwitch

A, B, C = "tcp://10.0.0.1:2377", "tcp://10.0.0.2:2377", "tcp://10.0.0.3:2377"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def a_list(disk: SimDisk, *configured: str) -> ManagerList:
    return ManagerList(SimFiles(disk, Life("n1", PauseSwitch())), "/state", configured)


async def test_configured_managers_come_first_and_each_once(disk, autojump_clock):
    managers = a_list(disk, A, B, A)
    await managers.learn([C, B])
    assert managers.addresses == [A, B, C]


async def test_each_failure_moves_on_and_the_round_begins_again(disk):
    managers = a_list(disk, A, B)
    seen = []
    for _ in range(3):
        seen.append(await managers.current())
        managers.advance()
    assert seen == [A, B, A]


async def test_learned_managers_are_known_after_a_restart(disk, autojump_clock):
    await a_list(disk, A).learn([B])
    restarted = a_list(disk, A)
    await restarted.load()
    assert restarted.addresses == [A, B]


async def test_learning_keeps_the_turn(disk, autojump_clock):
    managers = a_list(disk, A, B)
    managers.advance()
    await managers.learn([C])
    assert await managers.current() == B


async def test_a_disk_that_refuses_costs_only_the_memory(disk, autojump_clock):
    managers = a_list(disk, A)
    disk.full = True
    await managers.learn([B])
    assert managers.addresses == [A, B]


async def test_a_damaged_file_counts_as_none(disk, autojump_clock):
    await SimFiles(disk, Life("n1", PauseSwitch())).replace("/state/managers", b"{")
    managers = a_list(disk, A)
    await managers.load()
    assert managers.addresses == [A]
