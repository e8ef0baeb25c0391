"""The kernel's figures in one table: `./yard bench kernel [--json FILE]`.

Each line is a case, a number of nodes and the time of the processor that a task costs, with what was wanted and how many
times as fast that is as plain Python, numpy and the loop that one writes first, measured in the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import structlog

from beeyard.runtime.real_main import GC_THRESHOLDS
from benchmarks import commit_cases, kernel_cases
from benchmarks.conftest import machine
from benchmarks.kernel_cases import Figure
from benchmarks.natural import natural_loop

HEADER = f"{'case':18} {'nodes':>8} {'tasks':>8} {'µs a task':>10} {'wanted':>9} {'× Python':>9} {'× numpy':>8} {'× loop':>8}"


def figures() -> Iterator[Figure]:
    """All of them, as they are measured."""
    yield from kernel_cases.of_tables(natural_loop())
    yield kernel_cases.what_if()
    yield kernel_cases.memory_of_nodes()
    yield kernel_cases.memory_of_tasks()
    yield from commit_cases.all_cases()


def line(figure: Figure) -> str:
    """One line for a person."""
    head = f"{figure.case:18} {figure.nodes:8,} {figure.tasks:8,}"
    if figure.bytes is not None:
        return f"{head} {figure.bytes:7.1f} B {figure.wanted_us:7g} B"
    ratios = (figure.oracle_us, figure.numpy_us, figure.natural_us)
    shown = [f"{peer / figure.us:.3g}" if peer else "" for peer in ratios]
    return f"{head} {figure.us:10.4g} {figure.wanted_us:9.3g} {shown[0]:>9} {shown[1]:>8} {shown[2]:>8}"


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(prog="yard bench kernel", description="Figures of the kernel.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)  # as the daemons run
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    versions = {name: version(name) for name in ("beeyard", "numpy", "cython", "msgspec")}
    about = {**machine(), **versions, "platform": platform.platform(terse=True)}
    print("machine: " + ", ".join(f"{name} {value}" for name, value in about.items()))
    print(HEADER)
    rows = []
    for figure in figures():
        print(line(figure), flush=True)
        rows.append(figure.row())
    print(f"load {os.getloadavg()[0]:.1f} at the end; times are of the processor, the least of some runs")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
