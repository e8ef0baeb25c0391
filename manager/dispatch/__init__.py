"""Sessions with agents: what they are told, what they report, and whether they are alive."""

from beeyard.manager.dispatch.dispatcher import Dispatcher, DispatcherConfig

__all__ = ["Dispatcher", "DispatcherConfig"]
