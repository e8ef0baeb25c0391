"""What the steps of a node promise together."""

from __future__ import annotations

import pytest

from beeyard.agent import host_access, node_hooks, offers, parents, ports, volumes
from beeyard.agent.steps import Step, Steps
from tests.support.agent_tasks import an_assigned

MODULES = (host_access, node_hooks, offers, parents, ports, volumes)
STEPS = [
    kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Step)
]


class Between(Step):
    def stands_between(self, task):
        return task.id == "t1"


@pytest.mark.parametrize("kind", [kind for kind in STEPS if kind is not Step], ids=lambda kind: kind.__name__)
def test_a_step_that_acts_before_the_start_says_when(kind: type[Step]) -> None:
    """Else a task would be started without it."""
    acts = kind.attached is not Step.attached or kind.starting is not Step.starting
    assert acts == (kind.stands_between is not Step.stands_between)


def test_one_step_that_stands_between_is_enough() -> None:
    steps = Steps([Step(), Between()])
    assert steps.stands_between(an_assigned("t1"))
    assert not steps.stands_between(an_assigned("t2"))
