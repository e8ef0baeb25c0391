"""`beeyard client-certificate`: let a docker command on another machine use the API, and take that back."""

from __future__ import annotations

import argparse
import os
import urllib.parse
from pathlib import Path

from beeyard.cli.manager_api import ApiError, call, default_socket, told

NAME = "client-certificate"
TARGET = "/beeyard/client-certificates"


def main(arguments: list[str]) -> int:
    """Issue, list or revoke; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Certificates for docker commands on other machines (docker --tlsverify). Run it on the manager's host.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", help="whose it is; shows in the manager's log")
    parser.add_argument("--out", metavar="DIR", help="where ca.pem, cert.pem and key.pem are written")
    parser.add_argument("--valid-days", type=float, default=90.0, metavar="N", help="default %(default)g")
    parser.add_argument("--list", action="store_true", help="show the certificates that are valid")
    parser.add_argument("--revoke", metavar="NAME|SERIAL", help="refuse it from now on")
    parser.add_argument(
        "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
    )
    options = parser.parse_args(arguments)
    if sum((bool(options.name), options.list, bool(options.revoke))) != 1:
        parser.error("give a NAME with --out DIR, or --list, or --revoke NAME")
    if options.name and not options.out:
        parser.error("--out DIR is missing: where to write the files")
    try:
        if options.list:
            for one in call(options.socket, "GET", TARGET):
                print(f"{one['Name']:24} {one['Serial']:42} until {one['NotAfter'][:19]}Z")
        elif options.revoke:
            answer = call(options.socket, "DELETE", f"{TARGET}/{urllib.parse.quote(options.revoke, safe='')}")
            print(f"revoked: {answer['Revoked']}")
        else:
            issue(options.socket, options.name, Path(options.out), options.valid_days)
    except (ApiError, OSError) as error:
        return told(NAME, error)
    return 0


def issue(socket_path: str, name: str, out: Path, valid_days: float) -> None:
    """Make a key here, have its certificate signed, and write the three files that docker wants.

    Raises:
        ApiError, OSError
    """
    from beeyard.runtime.pki import RealPki  # half a second: only when a key is made

    csr_pem, key_pem = RealPki().new_request()
    body = {"Name": name, "Request": csr_pem.decode("ascii"), "ValidSeconds": valid_days * 86400}
    answer = call(socket_path, "POST", TARGET, body)
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(out / "key.pem", key_pem, 0o600)
    _write(out / "cert.pem", answer["Certificate"].encode("ascii"), 0o644)
    _write(out / "ca.pem", answer["CA"].encode("ascii"), 0o644)
    print(f"written to {out}. On the other machine, with these three files in a directory DIR:")
    print("  export DOCKER_HOST=tcp://MANAGER:2376 DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=DIR")


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that nobody can read before its mode says so."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


__all__ = ["issue", "main"]
