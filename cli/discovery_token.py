"""`beeyard discovery-token`: a token under which managers anywhere publish their lists at this host's manager."""

from __future__ import annotations

import argparse

from beeyard.cli.manager_api import ApiError, call, default_socket, told

NAME = "discovery-token"


def main(arguments: list[str]) -> int:
    """Print a discovery URL; the exit code of the process."""
    options = _parser().parse_args(arguments)
    try:
        made = call(options.socket, "POST", "/beeyard/v1/discovery/token")
        if options.ca:
            with open(options.ca, "w", encoding="ascii") as file:
                file.write(made["CaCertificate"])
    except ApiError as error:
        return told(NAME, error)
    except OSError as error:
        return told(NAME, ApiError(f"cannot write {options.ca}: {(error.strerror or str(error)).lower()}"))
    print(made["Url"])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Make a token and print the discovery URL with it. The manager of this host keeps what is published "
        "there; its setting token_listen says where it serves that.",
        allow_abbrev=False,
    )
    parser.add_argument("--ca", metavar="FILE", help="write the authority of its certificate here, for kv.cacertfile")
    parser.add_argument(
        "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
    )
    return parser


__all__ = ["main"]
