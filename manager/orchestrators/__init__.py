"""Who decides which tasks there should be, and which are over for good."""

from beeyard.manager.orchestrators.isolation import IsolationWatch
from beeyard.manager.orchestrators.reaper import Reaper
from beeyard.manager.orchestrators.replicated import ReplicatedOrchestrator

__all__ = ["IsolationWatch", "Reaper", "ReplicatedOrchestrator"]
