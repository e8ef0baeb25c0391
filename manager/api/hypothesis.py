"""Tasks that there might be: of a service that exists, or of one that somebody thinks of."""

from __future__ import annotations

import msgspec

from beeyard.core.labels import LABEL_STRATEGY
from beeyard.core.model import Service, ServiceSpec, Task
from beeyard.core.pins import pins_of
from beeyard.manager.control.service import checked_placement
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
        InvalidSpec
    """
    return Service(id=NOBODY, spec=checked_placement(view, msgspec.structs.replace(spec, name=spec.name or NOBODY)))


__all__ = ["NOBODY", "new_service", "next_task"]
