"""Kernel networking of one host over netlink; knows nothing of managers."""

from beeyard.netdrivers.driver import AttachedLink, attach, detach
from beeyard.netdrivers.inventory import host_links

__all__ = ["AttachedLink", "attach", "detach", "host_links"]
