"""How many random examples a test tries.

    BEEYARD_EXAMPLES=100000 .venv/bin/python -m pytest --timeout 0 tests/unit/core/test_placement_oracle.py

tries that many in each test that asks here, however few its own number is: the kernel and its oracles by hand, for hours.
"""

from __future__ import annotations

import os


def examples(n: int) -> int:
    """So many, unless somebody asks for more or fewer of all."""
    return int(os.environ.get("BEEYARD_EXAMPLES") or n)


__all__ = ["examples"]
