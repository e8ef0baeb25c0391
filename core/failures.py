"""Which nodes have failed a service lately: its next tasks go elsewhere as long as there is another place."""

from __future__ import annotations

from collections import deque

# Source: SwarmKit `maxFailures`, `monitorFailures`.
FAILURES_MIN = 5  # fewer may be chance
MONITOR_S = 300.0
# A node with more failures than this is as bad as one with this many: what is kept stays small whatever happens.
FAILURES_KEPT = 1000


class FailureMemory:
    """When tasks failed, by service and spec version and by node. In memory alone: a new manager begins without."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], dict[str, deque[float]]] = {}
        self._swept_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._failures)

    def copy(self) -> FailureMemory:
        """One of its own to try things on."""
        twin = FailureMemory()
        twin._swept_s = self._swept_s
        twin._failures = {key: {n: times.copy() for n, times in nodes.items()} for key, nodes in self._failures.items()}
        return twin

    def note(self, service_id: str, spec_version: int, node_id: str, now_s: float) -> None:
        """A task failed, or its node refused it.

        Args:
            now_s: of any clock that only goes forward, the same in every call.
        """
        if now_s - self._swept_s >= MONITOR_S:
            self._sweep(now_s)
        by_node = self._failures.setdefault((service_id, spec_version), {})
        by_node.setdefault(node_id, deque(maxlen=FAILURES_KEPT)).append(now_s)

    def faulty(self, service_id: str, spec_version: int, now_s: float) -> dict[str, int]:
        """Nodes with at least FAILURES_MIN failures within MONITOR_S, and how many: these are the last resort."""
        by_node = self._failures.get((service_id, spec_version))
        if not by_node:
            return {}
        counts = {node_id: _recent(times, now_s) for node_id, times in by_node.items() if len(times) >= FAILURES_MIN}
        return {node_id: n for node_id, n in counts.items() if n >= FAILURES_MIN}

    def _sweep(self, now_s: float) -> None:
        """Drop what is too old to count."""
        self._swept_s = now_s
        for key, by_node in list(self._failures.items()):
            kept = {node_id: times for node_id, times in by_node.items() if _recent(times, now_s)}
            if kept:
                self._failures[key] = kept
            else:
                del self._failures[key]


def _recent(times: deque[float], now_s: float) -> int:
    while times and times[0] <= now_s - MONITOR_S:
        times.popleft()
    return len(times)


__all__ = ["FAILURES_MIN", "MONITOR_S", "FailureMemory"]
