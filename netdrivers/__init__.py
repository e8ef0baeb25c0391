"""Kernel networking of one host over netlink; knows nothing of managers."""
