"""What a node offers besides CPU and memory, and what it keeps for itself: an operator's settings, read.

Generic resources are written as Docker's daemon takes them: `SSD=3` says how many there are, `GPU=uuid1` and `GPU=uuid2`
name each. A task is told what it got in its environment, `DOCKER_RESOURCE_GPU=uuid1`, as SwarmKit does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from beeyard.agent.config import AgentConfig
from beeyard.agent.steps import Step
from beeyard.core.errors import InvalidSpec
from beeyard.core.grant import ResourceGrant
from beeyard.core.resources import AMOUNT_MAX, KIND_RULE, GenericResource, Resources, is_kind
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions

ENVIRONMENT_PREFIX = "DOCKER_RESOURCE_"
# Printable and without a comma, which separates them in the environment.
_NAME = re.compile(r"[!-+\--~]{1,255}")


def parse_generic(entries: Iterable[str]) -> tuple[GenericResource, ...]:
    """The generic resources that a node offers, in order of their kinds.

    Args:
        entries: KIND=NUMBER once, or KIND=NAME for each.

    Raises:
        InvalidSpec: says which entry, and what would be right.
    """
    given: dict[str, list[str]] = {}
    for entry in entries:
        kind, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not is_kind(kind):
            raise InvalidSpec("generic resource", f"{entry!r:.80} is not KIND=NUMBER or KIND=NAME: {KIND_RULE}")
        if not _NAME.fullmatch(value):
            reason = "a name has 1 to 255 printable signs, no blank and no comma"
            raise InvalidSpec("generic resource", f"{entry!r:.300}: {reason}")
        given.setdefault(kind, []).append(value)
    return tuple(_resource(kind, values) for kind, values in sorted(given.items()))


def reserved_of(config: AgentConfig) -> Resources:
    """Of its host's resources what a node keeps for itself."""
    return Resources(cpu_nano=round(config.reserve_cpu * 10**9), memory_bytes=config.reserve_memory_mib << 20)


def _resource(kind: str, values: list[str]) -> GenericResource:
    numbers = [value for value in values if re.fullmatch(r"[0-9]+", value)]
    if not numbers:
        for value in values:
            if values.count(value) > 1:
                raise InvalidSpec("generic resource", f"{kind}={value:.80} is given twice")
        return GenericResource(kind=kind, names=tuple(values))
    if len(values) > 1:
        reason = f"{kind} has the number {numbers[0]:.20} and {len(values) - 1} more: give one number, or names alone"
        raise InvalidSpec("generic resource", reason)
    if len(numbers[0]) > 16 or not 0 < int(numbers[0]) < AMOUNT_MAX:
        raise InvalidSpec("generic resource", f"{kind}={numbers[0]:.40} is not between 1 and {AMOUNT_MAX - 1}")
    return GenericResource(kind=kind, value=int(numbers[0]))


def environment_of(task: AssignedTask) -> tuple[str, ...]:
    """What tells a task which resources it got, as "NAME=value"."""
    return tuple(
        f"{ENVIRONMENT_PREFIX}{claim.kind.upper()}={','.join(claim.names) or claim.value}"
        for grant in task.grants
        if isinstance(grant, ResourceGrant)
        for claim in grant.resources
    )


class ClaimStep(Step):
    """Tells each task what it claimed."""

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        environment = environment_of(task)
        return Additions(env=environment) if environment else NO_ADDITIONS


__all__ = ["ENVIRONMENT_PREFIX", "ClaimStep", "environment_of", "parse_generic", "reserved_of"]
