"""What a node offers besides CPU and memory, and what it keeps for itself: an operator's settings, read.

Generic resources are written as Docker's daemon takes them: `SSD=3` says how many there are, `GPU=uuid1` and `GPU=uuid2`
name each. A task is told what it got in its environment, `DOCKER_RESOURCE_GPU=uuid1`, as SwarmKit does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from beeyard.agent.config import AgentConfig
from beeyard.agent.steps import Step
from beeyard.core.errors import InvalidSpec
from beeyard.core.grant import ResourceGrant
from beeyard.core.resources import AMOUNT_MAX, KIND_RULE, GenericResource, Resources, is_kind
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions

ENVIRONMENT_PREFIX = "DOCKER_RESOURCE_"
# Printable and without a comma, which separates them in the environment.
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_NAME = re.compile(r"[!-+\--~]{1,255}")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a node."""

    generic: tuple[GenericResource, ...] = ()
    reserved: Resources = Resources()  # of the host's resources, what it keeps for itself
    labels: dict[str, str] = {}
    volumes_dir: str = ""  # where cluster volumes are; "": none are here


def offer_of(config: AgentConfig) -> Offer:
    """What a node's settings say. Raises InvalidSpec: an entry of a list is wrong."""
    return Offer(
        generic=parse_generic(config.generic_resources),
        reserved=Resources(cpu_nano=round(config.reserve_cpu * 10**9), memory_bytes=config.reserve_memory_mib << 20),
        labels=parse_labels(config.labels),
        volumes_dir=config.volumes_dir,
    )


def parse_labels(entries: Iterable[str]) -> dict[str, str]:
    """A node's own labels, the `engine.labels` of constraints.

    Args:
        entries: NAME=VALUE.

    Raises:
        InvalidSpec: says which entry, and what would be right.
    """
    labels: dict[str, str] = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not _LABEL.fullmatch(name):
            reason = "it must be NAME=VALUE, and a name has letters, digits, '-', '_' and '.'"
            raise InvalidSpec("label", f"{entry!r:.200}: {reason}")
        if name in labels:
            raise InvalidSpec("label", f"{name:.200} is given twice")
        labels[name] = value
    return labels


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


__all__ = ["ENVIRONMENT_PREFIX", "ClaimStep", "Offer", "environment_of", "offer_of", "parse_generic", "parse_labels"]
