"""`python -m tests.sim [SEED] [--seeds N]` runs seeds; `--check SEED` compares two runs of one seed under two hash seeds."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.sim.scenarios import SCENARIOS, default_scenario
from tests.sim.simulation import SimulationFailed


def main() -> int:
    """The exit code: 0 when every seed holds."""
    arguments = _arguments()
    level = logging.WARNING if arguments.verbose else logging.CRITICAL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    if arguments.check:
        return _check(arguments.seed, arguments.scenario)
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        before = time.monotonic()
        try:
            digest = _run(seed, arguments.scenario, arguments.trace)
        except SimulationFailed as failed:
            print(failed, flush=True)
            if arguments.verbose:
                raise
            return 1
        print(f"seed {seed}: ok, digest {digest}, {time.monotonic() - before:.1f} s", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./yard sim", description="simulate a whole cluster from a seed")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="so many seeds, counting up")
    parser.add_argument("--check", action="store_true", help="compare two runs of the seed")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default=default_scenario())
    parser.add_argument("--trace", metavar="FILE", help="write every event, message and draw of the run")
    parser.add_argument("--verbose", action="store_true", help="show the daemons' logs and the traceback")
    return parser.parse_args()


def _run(seed: int, scenario: str, trace: str | None) -> str:
    if trace is None:
        return SCENARIOS[scenario].run(seed)
    with open(trace, "w") as sink:
        return SCENARIOS[scenario].run(seed, sink=sink)


def _check(seed: int, scenario: str) -> int:
    """Run a seed twice and name the first difference."""
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"trace{hash_seed}" for hash_seed in (1, 2)]
        for hash_seed, file in zip((1, 2), files, strict=True):
            command = [sys.executable, "-m", "tests.sim", str(seed), "--scenario", scenario, "--trace", str(file)]
            ran = subprocess.run(
                command,
                env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode:
                print(ran.stdout, ran.stderr)
                return 1
        with files[0].open() as one, files[1].open() as other:
            for number, (left, right) in enumerate(itertools.zip_longest(one, other, fillvalue="(end)\n"), 1):
                if left != right:
                    print(f"seed {seed}: the two runs differ first in line {number}:\n  {left}  {right}", end="")
                    return 1
    print(f"seed {seed}: two runs under two hash seeds are the same in all {number} lines")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
