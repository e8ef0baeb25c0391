"""`python -m tests.sim [SEED] [--seeds N]` runs seeds; `--check SEED` compares two runs of one seed under two hash seeds."""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from tests.sim.mutants import MUTANTS
from tests.sim.probes import PROBES
from tests.sim.scenarios import SCENARIOS, default_scenario
from tests.sim.simulation import Run, SimulationFailed


def main() -> int:
    """The exit code: 0 when every seed holds."""
    arguments = _arguments()
    if arguments.check:
        return _check(arguments.seed, arguments.scenario)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    began = time.monotonic()
    failed: list[int] = []
    hits: Counter[str] = Counter()
    for number, seed in enumerate(seeds, 1):
        before = time.monotonic()
        try:
            run = _run(seed, arguments)
        except SimulationFailed as failure:
            print(failure, flush=True)
            failed.append(seed)
            if arguments.verbose:
                raise
        else:
            hits += run.hits
            took_s = time.monotonic() - before
            print(f"[{number}/{len(seeds)}] seed {seed}: ok, digest {run.digest}, {took_s:.1f} s", flush=True)
    if len(seeds) > 1:
        print(_summary(len(seeds), failed, hits, time.monotonic() - began, arguments.scenario))
    return 1 if failed else 0


def _summary(n_seeds: int, failed: list[int], hits: Counter[str], took_s: float, scenario: str) -> str:
    """What was reached and what was not, then the outcome in one line."""
    lines = []
    if scenario == default_scenario():
        lines += [f"{hits[probe.name]:8} x {probe.name}" for probe in PROBES if hits[probe.name]]
        lines += [f"   never   {probe.name}" for probe in PROBES if not hits[probe.name]]
    verdict = f"FAILED: {', '.join(map(str, failed))}" if failed else "all hold"
    return "\n".join([*lines, f"{n_seeds} seeds in {took_s:.0f} s: {verdict}"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./yard sim", description="simulate a whole cluster from a seed", allow_abbrev=False
    )
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="so many seeds, counting up")
    parser.add_argument("--check", action="store_true", help="compare two runs of the seed")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default=default_scenario())
    parser.add_argument("--mutant", choices=list(MUTANTS), help="with a defect on purpose, which some seed must find")
    parser.add_argument("--trace", metavar="FILE", help="write every event, message and draw of the run")
    parser.add_argument("--verbose", action="store_true", help="show the daemons' warnings and the traceback")
    return parser.parse_args()


def _run(seed: int, arguments: argparse.Namespace) -> Run:
    simulation = SCENARIOS[arguments.scenario]
    with (
        MUTANTS[arguments.mutant]() if arguments.mutant else nullcontext(),
        open(arguments.trace, "w") if arguments.trace else nullcontext() as sink,
    ):
        return simulation.run(seed, sink=sink, verbose=arguments.verbose)


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
