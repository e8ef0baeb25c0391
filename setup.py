"""The compiled extensions, the program beside each task, and their debug build; the metadata is in pyproject.toml.

CORE_DEBUG=1 turns on every check Cython has (bounds, wraparound, initialised, None), so that a wrong index in the kernel
raises instead of reading past a column, and the sanitizers of the C compiler. The unit lane runs with both builds.
"""

import os
import shlex
import subprocess
import sysconfig
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("CORE_DEBUG") == "1"
AT_ONCE = os.cpu_count() or 1  # modules that are compiled side by side
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
        # A square root is an instruction, nobody reads errno.
        extra_compile_args=["-O1" if DEBUG else "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno"],
        include_dirs=["core"],
        depends=glob("core/*.h"),
    )
    for module in KERNEL_MODULES
    if os.path.exists(f"src/beeyard/core/{module}.pyx")
]
extensions.append(
    Extension(
        "beeyard.discovery.gossip.wire.lzw",
        ["src/beeyard/discovery/gossip/wire/lzw.pyx"],
        extra_compile_args=["-O1" if DEBUG else "-O3", "-g0"],
    )
)


def mode_changed() -> bool:
    """Whether the last build was of the other mode: file times do not tell, so that everything must be built again."""
    stamp, mode = Path("build/kernel-mode"), "debug" if DEBUG else "release"
    changed = not stamp.exists() or stamp.read_text() != mode
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(mode)
    return changed


SHIM_SOURCES = Path("agent/executors/process/native")
SHIM = Path("agent/executors/process/beeyard-shim")
SHIM_FLAGS = "-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -fstack-protector-strong".split()
SHIM_RELEASE = "-O2 -D_FORTIFY_SOURCE=2 -Wl,-z,relro,-z,now".split()
SHIM_DEBUG = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all".split()


def compile_shim(target: Path) -> None:
    """Compile the program that holds a task (`agent/executors/process/native`), and put it in place in one step.

    It is linked statically where the host has a static C library, as one that can compile has on Debian: such a program
    starts faster. Else it works all the same.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    made = target.with_suffix(".new")
    command = [
        *compiler,
        *SHIM_FLAGS,
        *(SHIM_DEBUG if DEBUG else SHIM_RELEASE),
        *shlex.split(os.environ.get("CFLAGS", "")),
    ]
    command += ["-o", str(made), *sorted(map(str, SHIM_SOURCES.glob("*.c")))]
    if DEBUG or subprocess.run([*command, "-static"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(command, check=True)
    os.replace(made, target)  # it may be running


class Build(build_ext):
    """Builds the program where it builds the extensions."""

    def run(self) -> None:
        super().run()
        compile_shim(SHIM if self.inplace else Path(self.build_lib) / "beeyard" / SHIM)


setup(
    cmdclass={"build_ext": Build},
    options={"build_ext": {"force": mode_changed(), "parallel": AT_ONCE}},
    ext_modules=cythonize(
        extensions,
        nthreads=AT_ONCE,
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
