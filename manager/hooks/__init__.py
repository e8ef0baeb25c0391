"""What is reserved for a task, when in its life, and by whom."""

from beeyard.manager.hooks.early import EarlyHooks, begins_new
from beeyard.manager.hooks.hook import Hook, Stage, Subject, Window
from beeyard.manager.hooks.run import HookRun, release_grants, restore_grants

__all__ = [
    "EarlyHooks",
    "Hook",
    "HookRun",
    "Stage",
    "Subject",
    "Window",
    "begins_new",
    "release_grants",
    "restore_grants",
]
