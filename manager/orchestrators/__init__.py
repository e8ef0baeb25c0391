"""Who decides which tasks there should be, and which are over for good."""

from beeyard.manager.orchestrators.isolation import IsolationWatch
from beeyard.manager.orchestrators.reaper import Reaper
from beeyard.manager.orchestrators.replicated import ReplicatedOrchestrator
from beeyard.manager.orchestrators.volumes import VolumeOrchestrator

__all__ = ["IsolationWatch", "Reaper", "ReplicatedOrchestrator", "VolumeOrchestrator"]
