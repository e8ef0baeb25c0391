"""Amounts: what a node has, what a task reserves, and what it may use at most.

Besides CPU and memory there are *generic* resources, whose kinds operators name: GPUs, licences, slots of a device. A node
offers a number of them or lists them by name; a task asks for a number; what it was given (its *claim*) names the very ones.
Units: CPU in 1e-9 cores (`cpu_nano`), memory in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

# More CPU (1e-9 cores) or memory (bytes) than any node has: 9 million cores, 8 PiB; x86-64 and arm64 address 4 PiB. The
# kernel counts in int64, which a thousand such amounts on one node still fit into.
AMOUNT_MAX = 1 << 53

KIND_RULE = 'a kind begins with a letter and has at most 63 letters, digits, "_", "-" and "."'
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


def is_kind(name: str) -> bool:
    """Whether a kind of generic resources can be called so: what follows DOCKER_RESOURCE_ in a task's environment."""
    return _KIND.fullmatch(name) is not None


class GenericResource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Some of one kind of a generic resource: a number of equal ones, or each by its name."""

    kind: str
    value: int = 0  # how many, where they have no names
    names: tuple[str, ...] = ()

    @property
    def amount(self) -> int:
        """How many there are."""
        return len(self.names) or self.value


def generic_fault(resources: Sequence[GenericResource]) -> str:
    """What is wrong with the generic resources of a node, as a sentence; "" when all is well."""
    kinds = [resource.kind for resource in resources]
    if kinds != sorted(set(kinds)):
        return f"generic resources {', '.join(kinds):.200} are not one of each kind, in order"
    for resource in resources:
        if not is_kind(resource.kind):
            return f"generic resource {resource.kind!r:.80}: {KIND_RULE}"
        if not 0 < resource.amount <= AMOUNT_MAX:
            return f"{resource.amount} of generic resource {resource.kind} are not between 1 and {AMOUNT_MAX}"
        if len(set(resource.names)) < len(resource.names) or not all(resource.names):
            return f"names of generic resource {resource.kind} are not all different"
    return ""


class Resources(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a task reserves or a node has."""

    cpu_nano: int = 0
    memory_bytes: int = 0
    generic: tuple[GenericResource, ...] = ()  # at most one for each kind, in order of the kinds

    @property
    def generic_amounts(self) -> tuple[tuple[str, int], ...]:
        """How many there are of each kind."""
        return tuple((resource.kind, resource.amount) for resource in self.generic)


class Room(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much of each kind a node has for its tasks, and how much of that none of them has."""

    total: Resources
    free: Resources  # less than nothing when the node has less than it had
    n_tasks: int

    @property
    def taken(self) -> Resources:
        """What its tasks have."""
        free = dict(self.free.generic_amounts)
        return Resources(
            cpu_nano=self.total.cpu_nano - self.free.cpu_nano,
            memory_bytes=self.total.memory_bytes - self.free.memory_bytes,
            generic=tuple(
                GenericResource(kind=kind, value=total - free[kind]) for kind, total in self.total.generic_amounts
            ),
        )


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Ceilings that the executor enforces; 0 means none."""

    cpu_nano: int = 0
    memory_bytes: int = 0
    pids: int = 0


__all__ = ["AMOUNT_MAX", "KIND_RULE", "GenericResource", "Limits", "Resources", "Room", "generic_fault", "is_kind"]
