"""How long a member is suspected before it counts as dead: Lifeguard's local health aware suspicion.

The first accusation starts at the longest time. Each member that independently says the same takes a part of it away, the
first most, until with k of them the shortest is left: one accuser may be the sick one, several are hardly.
Source: Dadgar, Phillips, Currey: Lifeguard, 2017, section IV-B; memberlist 0.2.2 suspicion.go, util.go `suspicionTimeout`.
"""

from __future__ import annotations

import math

from beeyard.discovery.gossip.swim.config import Config
from beeyard.discovery.gossip.swim.timers import Timer


def suspicion_min_s(config: Config, n_known: int) -> float:
    """The shortest time, enough for a refutation to come around. The logarithm is cut to 1/1000, as memberlist does."""
    scale = max(1.0, math.log10(max(1, n_known)))
    return config.suspicion_mult * math.floor(scale * 1000) / 1000 * config.probe_interval_s


def n_confirmations(config: Config, n_known: int) -> int:
    """k, the confirmations for the shortest time; 0 when the cluster has not so many others."""
    k = config.suspicion_mult - 2
    return 0 if n_known - 2 < k else k


def suspicion_s(n: int, k: int, min_s: float, max_s: float) -> float:
    """The whole time of a suspicion with n of k confirmations, in full milliseconds."""
    if k < 1:
        return min_s
    raw_s = max_s - math.log(n + 1) / math.log(k + 1) * (max_s - min_s)
    return max(min_s, math.floor(1000 * raw_s) / 1000)


class Suspicion:
    """One that is running. It holds at most k + 1 names."""

    __slots__ = (
        "_accusers",
        "_k",
        "_max_s",
        "_min_s",
        "_refused_s",
        "refused",
        "since_s",
        "timer",
        "was_asked_last",
        "was_told",
    )

    def __init__(self, config: Config, now_s: float, n_known: int, accuser: str) -> None:
        self.since_s = now_s
        self.timer: Timer | None = None
        self.refused = False  # the suspect's host refused a connection
        self.was_told = False  # over TCP, which is certain
        self.was_asked_last = False  # its time is up, and it has the last word
        self._min_s = suspicion_min_s(config, n_known)
        self._max_s = self._min_s * config.suspicion_max_mult
        self._refused_s = self._min_s * config.refused_part
        self._k = n_confirmations(config, n_known)
        self._accusers = {accuser: True}

    def confirm(self, accuser: str) -> bool:
        """Whether this accusation is news that shortens the time."""
        if len(self._accusers) > self._k or accuser in self._accusers:
            return False
        self._accusers[accuser] = True
        return True

    def is_accuser(self, name: str) -> bool:
        """Whether this member is among those that counted."""
        return name in self._accusers

    @property
    def due_s(self) -> float:
        """When it ends. It may lie in the past."""
        whole_s = suspicion_s(len(self._accusers) - 1, self._k, self._min_s, self._max_s)
        return self.since_s + (min(whole_s, self._refused_s) if self.refused else whole_s)


__all__ = ["Suspicion", "n_confirmations", "suspicion_min_s", "suspicion_s"]
