"""Docker's Resources of a task and of a node ↔ `Resources` and `Limits`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from beeyard.core.amounts import cpu_text, memory_text
from beeyard.core.errors import InvalidSpec
from beeyard.core.resources import KIND_RULE, GenericResource, Limits, Resources, is_kind
from beeyard.manager.api.docker_value import compact
from beeyard.manager.api.fields import Fields

# Docker's own least values; below them a limit is nearly always a mistake of units.
CPU_NANO_MIN = 1_000_000
MEMORY_BYTES_MIN = 4 << 20
# What no node goes beyond: Linux' NR_CPUS, the 52 bits of physical addresses of x86-64 and arm64, Linux' PID_MAX_LIMIT.
CPU_NANO_MAX = 8192 * 10**9
MEMORY_BYTES_MAX = 1 << 52
PIDS_MAX = 1 << 22
# Bytes of any disk may be a generic resource too.
GENERIC_MAX = 1 << 52
# As many as the kernel has columns for.
KINDS_MAX = 14


def read_reservations(resources: Fields) -> Resources:
    """What each task has for itself. Raises InvalidSpec by the name of the field and flag."""
    fields = resources.nested("Reservations")
    reserved = Resources(
        cpu_nano=_cpu_nano(fields, "--reserve-cpu"),
        memory_bytes=_memory_bytes(fields, "--reserve-memory"),
        generic=_generic(fields),
    )
    fields.finish()
    return reserved


def read_limits(resources: Fields) -> Limits:
    """What each task may use at most. Raises InvalidSpec by the name of the field and flag."""
    fields = resources.nested("Limits")
    limits = Limits(
        cpu_nano=_cpu_nano(fields, "--limit-cpu"),
        memory_bytes=_memory_bytes(fields, "--limit-memory"),
        pids=fields.integer("Pids", maximum=PIDS_MAX, flag="--limit-pids"),
    )
    fields.finish()
    return limits


def show_resources(resources: Resources) -> dict[str, Any]:
    """Reservations of a task, or what a node has."""
    return compact(
        NanoCPUs=resources.cpu_nano,
        MemoryBytes=resources.memory_bytes,
        GenericResources=show_generic(resources.generic),
    )


def show_generic(resources: Iterable[GenericResource]) -> list[dict[str, Any]]:
    """Generic resources as Docker lists them: each name is an entry of its own."""
    shown: list[dict[str, Any]] = []
    for resource in resources:
        shown += [{"NamedResourceSpec": {"Kind": resource.kind, "Value": name}} for name in resource.names]
        if not resource.names:
            shown.append({"DiscreteResourceSpec": {"Kind": resource.kind, "Value": resource.value}})
    return shown


def show_amounts(resources: Resources) -> dict[str, Any]:
    """How much there is of each kind, zeros and all but what nobody has: `{"NanoCPUs": 1, "MemoryBytes": 2, "gpu": 3}`."""
    amounts = {"NanoCPUs": resources.cpu_nano, "MemoryBytes": resources.memory_bytes, **dict(resources.generic_amounts)}
    return amounts if any(amounts.values()) else {}


def _generic(fields: Fields) -> tuple[GenericResource, ...]:
    amounts: dict[str, int] = {}
    for entry in fields.nested_list("GenericResources"):
        if entry.has("NamedResourceSpec"):
            reason = (
                "a service asks for a number of a kind, KIND=NUMBER; which ones its tasks get is decided on the node"
            )
            raise InvalidSpec(f"{entry.name_of('NamedResourceSpec')} (--generic-resource)", reason)
        spec = entry.nested("DiscreteResourceSpec")
        kind = spec.text("Kind")
        if not is_kind(kind):
            raise InvalidSpec(f"{spec.name_of('Kind')} (--generic-resource)", f"{kind!r:.80}: {KIND_RULE}")
        if kind in amounts:
            raise InvalidSpec(f"{spec.name_of('Kind')} (--generic-resource)", f"{kind} is asked for twice")
        amounts[kind] = spec.integer("Value", minimum=1, maximum=GENERIC_MAX, flag="--generic-resource")
        if not amounts[kind]:
            raise InvalidSpec(f"{spec.name_of('Value')} (--generic-resource)", f"say how many {kind}")
        spec.finish()
        entry.finish()
    if len(amounts) > KINDS_MAX:
        field = f"{fields.name_of('GenericResources')} (--generic-resource)"
        raise InvalidSpec(field, f"{len(amounts)} kinds are more than {KINDS_MAX}")
    return tuple(GenericResource(kind=kind, value=amount) for kind, amount in sorted(amounts.items()))


def _cpu_nano(fields: Fields, flag: str) -> int:
    cpu_nano = fields.integer("NanoCPUs")
    field = f"{fields.name_of('NanoCPUs')} ({flag})"
    if 0 < cpu_nano < CPU_NANO_MIN:
        raise InvalidSpec(field, f"{cpu_text(cpu_nano)} CPUs are too few: must be at least 0.001")
    if cpu_nano > CPU_NANO_MAX:
        raise InvalidSpec(
            field, f"{cpu_text(cpu_nano)} CPUs are more than any node has: at most {cpu_text(CPU_NANO_MAX)}"
        )
    return cpu_nano


def _memory_bytes(fields: Fields, flag: str) -> int:
    memory_bytes = fields.integer("MemoryBytes")
    field = f"{fields.name_of('MemoryBytes')} ({flag})"
    if 0 < memory_bytes < MEMORY_BYTES_MIN:
        least = memory_text(MEMORY_BYTES_MIN)
        raise InvalidSpec(field, f"{memory_text(memory_bytes)} is too little: must be at least {least}")
    if memory_bytes > MEMORY_BYTES_MAX:
        most = memory_text(MEMORY_BYTES_MAX)
        raise InvalidSpec(field, f"{memory_text(memory_bytes, up=True)} is more than any node has: at most {most}")
    return memory_bytes


__all__ = ["read_limits", "read_reservations", "show_amounts", "show_generic", "show_resources"]
