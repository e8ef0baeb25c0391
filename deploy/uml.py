"""`./yard uml COMMAND...`: run a command on a kernel of its own, see `deploy.uml_host`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from deploy.uml_host import UmlHost, own_directory


def main(command: list[str]) -> int:
    """Boot a host, run the command in it, show its console as it comes; gives the command's exit code."""
    host = UmlHost("uml", own_directory("command"))
    try:
        host.console.touch()
        with subprocess.Popen(["tail", "-n", "+1", "-f", str(host.console)]) as shown:
            try:
                path = shlex.quote(os.environ["PATH"])
                host.boot(
                    f"cd {shlex.quote(os.getcwd())}; export PATH={path}\n{shlex.join(command or ['uname', '-a'])}\n"
                )
                return host.finish(24 * 3600.0)
            finally:
                shown.terminate()
    finally:
        host.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
