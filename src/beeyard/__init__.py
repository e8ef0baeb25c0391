"""Beeyard: a cluster orchestrator for Linux hosts that schedules first and allocates second."""

__version__ = "0.1.0"
