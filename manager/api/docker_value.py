"""Docker's units: times in RFC 3339, durations in nanoseconds, and objects without their empty members."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

ZERO_TIME = "0001-01-01T00:00:00Z"
# Ten years, the longest duration that is taken or shown. Go's ends at 292 years; a client that is sent more breaks on the
# whole reply, and a float of seconds for that many nanoseconds may round up beyond it.
DURATION_S_MAX = 3650 * 86400


def time_of(at_s: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC; 0 is Go's zero time."""
    if at_s <= 0:
        return ZERO_TIME
    return f"{datetime.fromtimestamp(at_s, UTC).isoformat(timespec='microseconds')[:26]}Z"


def nanoseconds(duration_s: float) -> int:
    """A duration as Docker writes it. Always an int of 64 bits: Go refuses a fraction, an exponent or more."""
    return round(min(duration_s, DURATION_S_MAX) * 1_000_000_000)


def compact(**members: Any) -> dict[str, Any]:
    """A dictionary without the members that are None, 0, "", false or empty: what Go's `omitempty` leaves."""
    return {name: value for name, value in members.items() if value}


__all__ = ["DURATION_S_MAX", "ZERO_TIME", "compact", "nanoseconds", "time_of"]
