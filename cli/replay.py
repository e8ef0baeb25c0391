"""`beeyard replay FILE`: decide again what a manager decided, and say where the outcome differs."""

from __future__ import annotations

import argparse
import gzip
import zlib
from pathlib import Path

from beeyard.cli.manager_api import told
from beeyard.core.errors import InvalidSpec
from beeyard.core.replay import replay

NAME = "replay"
_GZIP = b"\x1f\x8b"


def main(arguments: list[str]) -> int:
    """Replay one log; the exit code of the process: 1 when a decision differs, 2 when the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Run a log of decisions again: the same machine code or another's must decide the same. A manager "
        "writes logs with the setting decision_log_mib, below its state_dir.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the log, also compressed with gzip")
    options = parser.parse_args(arguments)
    try:
        data = options.file.read_bytes()
        outcome = replay(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except OSError as error:
        told(NAME, OSError(f"cannot read {options.file}: {(error.strerror or str(error)).lower()}"))
        return 2
    except (EOFError, zlib.error):
        told(NAME, OSError(f"cannot read {options.file}: what gzip compressed is damaged or cut off"))
        return 2
    except InvalidSpec as error:
        told(NAME, error)
        return 2
    if outcome.difference:
        print(outcome.difference)
        return 1
    print(f"{_count(outcome.n_decisions, 'decision')}, {_count(outcome.n_tasks, 'task')} placed: all the same")
    print(f"digest {outcome.digest}")
    if outcome.n_bytes_cut:
        print(f"the last {_count(outcome.n_bytes_cut, 'byte')} are of a message that was cut off or is damaged")
    return 0


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


__all__ = ["main"]
