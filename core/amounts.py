"""Amounts in messages, in the units that people read.

What does not fit two decimals is rounded so that no message contradicts itself: what somebody has down, what somebody asks
for up. "1.01 GiB asked, 1 GiB free" is never shown as one number twice.
"""

from __future__ import annotations

_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_NANO = 10**9
_DAY_S = 86400


def memory_text(n_bytes: int, *, up: bool = False) -> str:
    """Bytes as "600 MiB", "1.5 GiB" or "1 byte", in the largest unit of which there is one; `up`: rounded up, not down."""
    power = min(max(n_bytes.bit_length() - 1, 0) // 10, len(_SIZES) - 1)
    hundredths = n_bytes * 100 >> 10 * power
    if up:
        hundredths = -(-n_bytes * 100 >> 10 * power)
    unit = "byte" if n_bytes == 1 else _SIZES[power]
    return f"{_decimal(hundredths, 100)} {unit}"


def cpu_text(cpu_nano: int) -> str:
    """CPUs as "0.5" or "16", exactly: there are at most nine decimals."""
    return _decimal(cpu_nano, _NANO)


def duration_text(duration_s: float) -> str:
    """Seconds as "300 s"; whole days, from two on, as "3650 days"."""
    if duration_s >= 2 * _DAY_S and duration_s % _DAY_S == 0:
        return f"{duration_s / _DAY_S:.0f} days"
    return f"{duration_s:.9f}".rstrip("0").rstrip(".") + " s"


def _decimal(n: int, scale: int) -> str:
    """n / scale in decimals, without zeros at the end; `scale` is a power of ten."""
    digits = len(str(scale)) - 1
    return f"{n // scale}.{n % scale:0{digits}}".rstrip("0").rstrip(".")


__all__ = ["cpu_text", "duration_text", "memory_text"]
