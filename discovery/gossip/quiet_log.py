"""Warnings that a peer can cause as often as it likes, told a few times a minute."""

from __future__ import annotations

import structlog
import trio

log = structlog.get_logger("beeyard.discovery.gossip")

# Enough to see what is going on, and 100 MB a year at worst.
WARNINGS_PER_MINUTE = 5


class QuietLog:
    """Tells the first warnings of a kind in each minute, and with the next one how many were left out."""

    def __init__(self) -> None:
        self.n_warnings = 0
        self._told: dict[str, tuple[float, int]] = {}  # kind: beginning of its minute, warnings in it

    def warn(self, kind: str, **fields: object) -> None:
        """Something is wrong that is nobody's fault here. `kind` is one of our own sentences, never a peer's."""
        self.n_warnings += 1
        now_s = trio.current_time()
        began_s, n_told = self._told.get(kind, (now_s, 0))
        left_out = 0
        if now_s >= began_s + 60.0:
            left_out = max(0, n_told - WARNINGS_PER_MINUTE)
            began_s, n_told = now_s, 0
        self._told[kind] = (began_s, n_told + 1)
        if n_told < WARNINGS_PER_MINUTE:
            more = {"left_out": left_out} if left_out else {}
            log.warning(kind, **fields, **more)


__all__ = ["WARNINGS_PER_MINUTE", "QuietLog"]
