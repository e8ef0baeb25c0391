"""`beeyard launch`: be the process that forks tasks for the agent that a service manager connected to descriptor 3.

Under a service manager the agent is restricted, and its children would inherit that for good: filters of system calls,
bounded capabilities, a mount namespace. So the zygote is then no child of the agent but a service of its own.
"""

from __future__ import annotations

import os
import sys

from beeyard.agent.executors.process.zygote_client import PROGRAM, zygote_command


def main(arguments: list[str]) -> int:
    """Become the zygote; returns only when that fails."""
    if arguments or os.environ.get("LISTEN_FDS") != "1":
        print("beeyard launch: it is started by beeyard-launcher.socket, with the agent's connection", file=sys.stderr)
        return 2
    os.set_inheritable(3, True)
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    os.execve(PROGRAM, zygote_command("-"), environment)


__all__ = ["main"]
