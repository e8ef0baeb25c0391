"""Docker's Placement of a task ↔ the fields of `TaskSpec` that say which nodes it may go to."""

from __future__ import annotations

from typing import Any, NamedTuple

from beeyard.core.errors import InvalidSpec
from beeyard.core.model import Platform, TaskSpec
from beeyard.core.preference import LEVELS_MAX, Preference, parse_preference
from beeyard.manager.api.docker_value import compact
from beeyard.manager.api.fields import Fields

# Far above what one cluster runs; a number beyond it is a slip, and each replica costs memory from then on.
REPLICAS_MAX = 100_000


class Placement(NamedTuple):
    """The part of a task spec that is read here; fields as there."""

    constraints: tuple[str, ...]
    platforms: tuple[Platform, ...]
    preferences: tuple[Preference, ...]
    max_replicas_per_node: int


def read_placement(template: Fields) -> Placement:
    """The placement of a task template. Raises InvalidSpec by the name of the field and flag."""
    fields = template.nested("Placement")
    placement = Placement(
        constraints=fields.texts("Constraints"),
        platforms=_platforms(fields),
        preferences=_preferences(fields),
        max_replicas_per_node=fields.integer("MaxReplicas", maximum=REPLICAS_MAX, flag="--replicas-max-per-node"),
    )
    fields.finish()
    return placement


def show_placement(spec: TaskSpec) -> dict[str, Any]:
    """The Placement of a TaskTemplate."""
    return compact(
        Constraints=list(spec.constraints),
        Preferences=[{"Spread": {"SpreadDescriptor": str(preference)}} for preference in spec.preferences],
        MaxReplicas=spec.max_replicas_per_node,
        Platforms=[compact(Architecture=p.architecture, OS=p.os) for p in spec.platforms],
    )


def _platforms(placement: Fields) -> tuple[Platform, ...]:
    platforms = []
    for fields in placement.nested_list("Platforms"):
        platforms.append(Platform(architecture=fields.text("Architecture"), os=fields.text("OS")))
        fields.finish()
    return tuple(platforms)


def _preferences(placement: Fields) -> tuple[Preference, ...]:
    preferences: list[Preference] = []
    for fields in placement.nested_list("Preferences"):
        spread = fields.nested("Spread")
        field = f"{spread.name_of('SpreadDescriptor')} (--placement-pref)"
        try:
            preference = parse_preference(spread.text("SpreadDescriptor"))
        except InvalidSpec as error:
            raise InvalidSpec(field, error.reason) from error
        if any(other.descriptor == preference.descriptor for other in preferences):
            raise InvalidSpec(field, f"{preference.descriptor} is given twice")
        preferences.append(preference)
        spread.finish()
        fields.finish()
    if len(preferences) > LEVELS_MAX:
        reason = f"{len(preferences)} levels are more than {LEVELS_MAX}"
        raise InvalidSpec(f"{placement.name_of('Preferences')} (--placement-pref)", reason)
    return tuple(preferences)


__all__ = ["REPLICAS_MAX", "Placement", "read_placement", "show_placement"]
