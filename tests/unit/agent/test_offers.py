"""What a node's operator says that it offers, and what a task is told of it."""

from __future__ import annotations

import pytest

from beeyard.agent.config import AgentConfig
from beeyard.agent.offers import ClaimStep, Offer, environment_of, offer_of, parse_generic, parse_labels
from beeyard.core.errors import InvalidSpec
from beeyard.core.resources import Resources
from beeyard.runtime.host import NO_ADDITIONS
from tests.support.agent_tasks import an_assigned
from tests.support.builders import some_generic


def test_a_number_is_an_amount_and_anything_else_a_name() -> None:
    entries = ["ssd=3", "GPU=uuid-2", " GPU = uuid-1 ", "fpga=0x1"]
    assert parse_generic(entries) == some_generic({"GPU": ["uuid-2", "uuid-1"], "fpga": ["0x1"], "ssd": 3})
    assert parse_generic([]) == ()


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (["gpu"], "'gpu' is not KIND=NUMBER or KIND=NAME"),
        (["=3"], "is not KIND=NUMBER or KIND=NAME: a kind begins with a letter"),
        (["9gpu=3"], "a kind begins with a letter"),
        (["gp u=3"], "a kind begins with a letter"),
        (["gpu="], "a name has 1 to 255 printable signs"),
        (["gpu=a b"], "no blank and no comma"),
        (["gpu=" + "x" * 256], "a name has 1 to 255 printable signs"),
        (["gpu=a", "gpu=b", "gpu=a"], "gpu=a is given twice"),
        (["gpu=1", "gpu=2"], "gpu has the number 1 and 1 more"),
        (["gpu=a", "gpu=2"], "gpu has the number 2 and 1 more"),
        (["gpu=0"], "gpu=0 is not between 1 and 9007199254740991"),
        (["gpu=9007199254740992"], "gpu=9007199254740992 is not between"),
        (["gpu=" + "9" * 200], "is not between"),
    ],
)
def test_what_cannot_be_offered_is_refused(entries: list[str], reason: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_generic(entries)
    assert reason in str(caught.value)


def test_what_an_operator_says_of_a_node() -> None:
    assert offer_of(AgentConfig()) == Offer()
    config = AgentConfig(
        reserve_cpu=0.25,
        reserve_memory_mib=512,
        labels=("disk=ssd", " rack = r1 = left "),
        generic_resources=("ssd=3",),
        volumes_dir="/srv/v",
    )
    assert offer_of(config) == Offer(
        generic=some_generic({"ssd": 3}),
        reserved=Resources(cpu_nano=250_000_000, memory_bytes=512 << 20),
        labels={"disk": "ssd", "rack": "r1 = left"},
        volumes_dir="/srv/v",
    )


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (["disk"], "'disk': it must be NAME=VALUE"),
        (["=ssd"], "it must be NAME=VALUE"),
        (["di sk=ssd"], "'di sk=ssd': it must be NAME=VALUE"),
        (["disk=ssd", "disk=hdd"], "disk is given twice"),
    ],
)
def test_labels_that_are_none_are_refused(entries: list[str], reason: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_labels(entries)
    assert reason in str(caught.value)


async def test_a_task_is_told_what_it_got_as_swarmkit_tells_it() -> None:
    task = an_assigned("t1", claims={"gpu": ["uuid-1", "uuid-2"], "Big.disk": 3})
    assert environment_of(task) == ("DOCKER_RESOURCE_BIG.DISK=3", "DOCKER_RESOURCE_GPU=uuid-1,uuid-2")
    assert (await ClaimStep().before(task)).env == environment_of(task)
    assert await ClaimStep().before(an_assigned("t2")) is NO_ADDITIONS
