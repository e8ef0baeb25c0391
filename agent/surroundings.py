"""What all tasks of one node share."""

from __future__ import annotations

import dataclasses

from beeyard.agent.admission import Admission
from beeyard.agent.contact import Contact
from beeyard.agent.local_state import LocalState
from beeyard.agent.reporter import Reporter
from beeyard.agent.steps import Steps
from beeyard.runtime.host import Host


@dataclasses.dataclass(frozen=True, eq=False)
class Surroundings:
    """Made once, when the agent starts."""

    host: Host
    state: LocalState
    reporter: Reporter
    admission: Admission
    contact: Contact
    steps: Steps


__all__ = ["Surroundings"]
