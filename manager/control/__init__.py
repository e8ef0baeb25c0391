"""Validated operations on the store: what users ask for, whichever way it came in."""
