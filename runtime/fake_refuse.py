"""How a simulated kernel says no."""

from __future__ import annotations

import os
from typing import NoReturn

from beeyard.runtime.netlink_format import RequestRefused


def refuse(code: int, said: str = "") -> NoReturn:
    """Answer with an error number, and an extended message when Linux has one."""
    raise RequestRefused(code, said or os.strerror(code))


__all__ = ["refuse"]
