"""The compiled kernel's extensions and their debug build; all other metadata is in pyproject.toml.

CORE_DEBUG=1 turns on every check Cython has (bounds, wraparound, initialised, None), so that a wrong index in the kernel
raises instead of reading past a column. The unit lane runs with both builds.
"""

import os
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("CORE_DEBUG") == "1"
KERNEL_MODULES = (
    "node_index",
    "node_table",
    "branches",
    "filters",
    "ask_walk",
    "spread_scan",
    "spread_rounds",
    "spread_tree",
    "packing",
    "shares",
    "best_fit",
    "fragments",
    "bin_packing",
)

extensions = [
    Extension(
        f"beeyard.core.{module}",
        [f"src/beeyard/core/{module}.pyx"],
        # Never a*b + c in one rounding unless it is written so: what the kernel decides must not depend on the processor.
        extra_compile_args=["-O1" if DEBUG else "-O3", "-g0", "-ffp-contract=off"],
        include_dirs=["core"],
        depends=glob("core/*.h"),
    )
    for module in KERNEL_MODULES
    if os.path.exists(f"src/beeyard/core/{module}.pyx")
]


def mode_changed() -> bool:
    """Whether the last build was of the other mode: file times do not tell, so that everything must be built again."""
    stamp, mode = Path("build/kernel-mode"), "debug" if DEBUG else "release"
    changed = not stamp.exists() or stamp.read_text() != mode
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(mode)
    return changed


setup(
    options={"build_ext": {"force": mode_changed()}},
    ext_modules=cythonize(
        extensions,
        include_path=["src"],
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "nonecheck": DEBUG,
            "cdivision": not DEBUG,
        },
    )
    if extensions
    else [],
)
