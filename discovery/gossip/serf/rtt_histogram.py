"""How long probes take, for metrics: counts by upper bound, as Prometheus wants a histogram."""

from __future__ import annotations

from bisect import bisect_left

# From one switch to the other side of the world; a probe that takes longer than 0.5 s is asked through others.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)


class RttHistogram:
    """Counts round-trip times."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, rtt_s: float) -> None:
        """Count one."""
        self._counts[bisect_left(BOUNDS_S, rtt_s)] += 1
        self._sum_s += rtt_s

    def figures(self) -> dict[str, float]:
        """Cumulated counts by bound, the number and the sum."""
        shown, n_below = {}, 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            n_below += count
            shown[f"probe_rtt_s_le_{bound}"] = float(n_below)
        return {**shown, "probe_rtt_s_sum": self._sum_s, "probe_rtt_s_count": float(n_below)}


__all__ = ["BOUNDS_S", "RttHistogram"]
