"""The labels by which users say what Docker has no field for. All begin with `beeyard.`; no others begin so.

A label of this kind that nobody reads would be a wish that is ignored in silence, so unknown ones are refused, also those
that only differ in case.
"""

from __future__ import annotations

from collections.abc import Mapping

from beeyard.core.errors import InvalidSpec

PREFIX = "beeyard."

# Of networks; what they mean is in `core.pools`.
LABEL_CONFIG = "beeyard.config"
LABEL_NODES = "beeyard.nodes"
LABEL_SEGMENT = "beeyard.segment"
NETWORK_LABELS = (LABEL_CONFIG, LABEL_NODES, LABEL_SEGMENT)

# Of services: what becomes of a task whose node is out of the manager's reach. `fence`: it is stopped after a minute.
LABEL_ON_ISOLATION = "beeyard.on-isolation"
FENCE = "fence"
# Addresses of its slots, and MAC addresses that follow from the slots; what they mean is in `core.pins`.
LABEL_ADDRESSES = "beeyard.addresses"
LABEL_MAC = "beeyard.mac"
PER_SLOT = "per-slot"
# By which rule its tasks are placed. A change counts for tasks that are made from then on.
LABEL_STRATEGY = "beeyard.strategy"
STRATEGIES = ("spread", "pack", "shape", "fgd")
SERVICE_LABELS = (LABEL_ON_ISOLATION, LABEL_ADDRESSES, LABEL_MAC, LABEL_STRATEGY)


def is_fenced(service_labels: Mapping[str, str]) -> bool:
    """Whether a service's tasks have the short lease and are stopped when it lapses."""
    return service_labels.get(LABEL_ON_ISOLATION) == FENCE


def check_service_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels of a service that nothing would follow.

    Raises:
        InvalidSpec: a name that no label of a service has, or a value that this one cannot have.
    """
    for label in sorted(labels):
        if label.lower().startswith(PREFIX) and label not in SERVICE_LABELS:
            known = ", ".join(SERVICE_LABELS)
            raise InvalidSpec(f"label {label}", f"no label of a service has this name: known are {known}")
    if (value := labels.get(LABEL_ON_ISOLATION, FENCE)) != FENCE:
        raise InvalidSpec(f"label {LABEL_ON_ISOLATION}", f"{value!r:.80} is not {FENCE}: leave it out for no fencing")
    if (value := labels.get(LABEL_MAC, PER_SLOT)) != PER_SLOT:
        reason = f"{value!r:.80} is not {PER_SLOT}: leave it out for MAC addresses that follow from the addresses"
        raise InvalidSpec(f"label {LABEL_MAC}", reason)
    if (value := labels.get(LABEL_STRATEGY, "")) not in ("", *STRATEGIES):
        reason = f"{value!r:.80} is none of {', '.join(STRATEGIES)}: leave it out for the cluster's own"
        raise InvalidSpec(f"label {LABEL_STRATEGY}", reason)


def check_network_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels of a network that nothing would follow.

    Raises:
        InvalidSpec: a name that no label of a network has.
    """
    for label in sorted(labels):
        if label.lower().startswith(PREFIX) and label not in NETWORK_LABELS:
            known = ", ".join(NETWORK_LABELS)
            raise InvalidSpec(f"label {label}", f"no label of a network has this name: known are {known}")


__all__ = [
    "FENCE",
    "LABEL_ADDRESSES",
    "LABEL_CONFIG",
    "LABEL_MAC",
    "LABEL_NODES",
    "LABEL_ON_ISOLATION",
    "LABEL_SEGMENT",
    "LABEL_STRATEGY",
    "PER_SLOT",
    "STRATEGIES",
    "check_network_labels",
    "check_service_labels",
    "is_fenced",
]
