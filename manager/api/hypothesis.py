"""Tasks that there might be: of a service that exists, or of one that somebody thinks of."""

from __future__ import annotations

import msgspec

from beeyard.core import constraint
from beeyard.core.labels import LABEL_STRATEGY, check_service_labels
from beeyard.core.model import Service, ServiceSpec, Task
from beeyard.core.pins import pins_of
from beeyard.manager.api.lookup import find_network
from beeyard.manager.store import View

# No service has an id or a name with a space.
NOBODY = "what if"


def next_task(service: Service, slot: int) -> Task:
    """A task that the service does not have; it has no id."""
    return Task(
        id="",
        service_id=service.id,
        service_name=service.spec.name,
        slot=slot,
        spec=service.spec.task,
        spec_version=service.spec_version,
        pins=pins_of(service.spec.labels).of_slot(slot),
        strategy=service.spec.labels.get(LABEL_STRATEGY, ""),
    )


def new_service(view: View, spec: ServiceSpec) -> Service:
    """A service as it would be stored, its networks as ids. That no node has its image, say, is part of the answer, no error.

    Raises:
        InvalidSpec, NotFound, Ambiguous
    """
    constraint.parse_all(spec.task.constraints)
    check_service_labels(spec.labels)
    network_ids = tuple(find_network(view, target).id for target in spec.task.network_ids)
    task = msgspec.structs.replace(spec.task, network_ids=network_ids)
    return Service(id=NOBODY, spec=msgspec.structs.replace(spec, name=spec.name or NOBODY, task=task))


__all__ = ["NOBODY", "new_service", "next_task"]
