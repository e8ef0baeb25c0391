"""The labels by which users say what Docker has no field for. All begin with `beeyard.`; no others begin so.

A label of this kind that nobody reads would be a wish that is ignored in silence, so unknown ones are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from beeyard.core.errors import InvalidSpec, Unsupported

PREFIX = "beeyard."

# Of networks; what they mean is in `core.pools`.
LABEL_CONFIG = "beeyard.config"
LABEL_NODES = "beeyard.nodes"
LABEL_SEGMENT = "beeyard.segment"
NETWORK_LABELS = (LABEL_CONFIG, LABEL_NODES, LABEL_SEGMENT)

# Of services: what becomes of a task whose node is out of the manager's reach. `fence`: it is stopped after a minute.
LABEL_ON_ISOLATION = "beeyard.on-isolation"
FENCE = "fence"
SERVICE_LABELS = (LABEL_ON_ISOLATION,)
# Planned, and likely to be tried: addresses for certain slots.
LABEL_ADDRESSES = "beeyard.addresses"


def is_fenced(service_labels: Mapping[str, str]) -> bool:
    """Whether a service's tasks have the short lease and are stopped when it lapses."""
    return service_labels.get(LABEL_ON_ISOLATION) == FENCE


def check_service_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels of a service that nothing would follow.

    Raises:
        InvalidSpec: a name that no label of a service has, or a value that this one cannot have.
        Unsupported: `beeyard.addresses`.
    """
    if LABEL_ADDRESSES in labels:
        raise Unsupported(f"label {LABEL_ADDRESSES}", "each task gets an address of its network's pool")
    for label in sorted(labels):
        if label.startswith(PREFIX) and label not in SERVICE_LABELS:
            raise InvalidSpec(f"label {label}", f"no label of a service has this name: known is {LABEL_ON_ISOLATION}")
    if (value := labels.get(LABEL_ON_ISOLATION, FENCE)) != FENCE:
        raise InvalidSpec(f"label {LABEL_ON_ISOLATION}", f"{value!r:.80} is not {FENCE}: leave it out for no fencing")


def check_network_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels of a network that nothing would follow.

    Raises:
        InvalidSpec: a name that no label of a network has.
    """
    for label in sorted(labels):
        if label.startswith(PREFIX) and label not in NETWORK_LABELS:
            known = ", ".join(NETWORK_LABELS)
            raise InvalidSpec(f"label {label}", f"no label of a network has this name: known are {known}")


__all__ = [
    "FENCE",
    "LABEL_CONFIG",
    "LABEL_NODES",
    "LABEL_ON_ISOLATION",
    "LABEL_SEGMENT",
    "check_network_labels",
    "check_service_labels",
    "is_fenced",
]
