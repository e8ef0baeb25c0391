"""`beeyard gossip-metrics`: the figures of this host's gossip for Prometheus, printed or kept in a file.

A manager's are in its /beeyard/v1/metrics too. An agent listens to nothing, so its figures go the way of other programs that
have no port: into a file that node_exporter's textfile collector reads.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from beeyard.cli.gossip_socket import add_socket, ask_once, find_socket
from beeyard.cli.manager_api import ApiError, told

NAME = "gossip-metrics"


def main(arguments: list[str]) -> int:
    """Print or write; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Figures of this host's gossip in the text format of Prometheus.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="replace this file, as one piece: such as /var/lib/prometheus/node-exporter/beeyard.prom",
    )
    add_socket(parser, json_too=False)
    options = parser.parse_args(arguments)
    try:
        text: str = ask_once(find_socket(options.socket), {"do": "metrics"})["text"]
        if options.out is None:
            print(text, end="")
        else:
            replace(options.out, text)
    except ApiError as error:
        return told(NAME, error)
    except OSError as error:
        return told(NAME, OSError(f"cannot write {options.out}: {(error.strerror or str(error)).lower()}"))
    return 0


def replace(path: Path, text: str) -> None:
    """Give a file another content; whoever reads it sees the one or the other. Raises OSError."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


__all__ = ["main", "replace"]
