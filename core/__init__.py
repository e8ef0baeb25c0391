"""Decisions and data: no I/O, no clock, no randomness, no trio."""
