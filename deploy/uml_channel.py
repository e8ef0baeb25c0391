"""The command channel of a UML host: a small server inside it that runs commands and passes connections on to unix
sockets.

Run inside by the system's own Python, as `python3 uml_channel.py PORT`; needs nothing but the standard library. A
client sends one JSON line. `{"argv": [...], "input": text, "timeout_s": n}` runs a program and is answered with one
JSON line `{"returncode": n, "stdout": text, "stderr": text}`; `{"connect": path}` turns the connection into one to
that unix socket. There is no protection: the port is reachable on the test's own bridge alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from typing import Any

PORT = 909


class Channel(socketserver.StreamRequestHandler):
    """One connection."""

    def handle(self) -> None:
        line = self.rfile.readline()
        if not line:
            return
        request = json.loads(line)
        if "connect" in request:
            self.pass_on(request["connect"])
        else:
            self.wfile.write(json.dumps(run(request)).encode() + b"\n")

    def pass_on(self, path: str) -> None:
        """Copy bytes both ways until both sides have ended."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as inner:
            inner.connect(path)
            self.connection.sendall(b"+")  # nothing may follow the request before: it would be read along with it
            back = threading.Thread(target=copy, args=(inner, self.connection), daemon=True)
            back.start()
            copy(self.connection, inner)
            back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends or either side breaks, and hand the end on."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one program to its end."""
    try:
        done = subprocess.run(
            request["argv"],
            input=request.get("input") or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=request.get("timeout_s"),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"returncode": 124, "stdout": "", "stderr": f"not done within {request['timeout_s']} s"}
    except OSError as error:
        return {"returncode": 127, "stdout": "", "stderr": str(error)}
    return {"returncode": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


class Server(socketserver.ThreadingTCPServer):
    """Takes a new connection in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    os.environ.setdefault("HOME", "/root")
    with Server(("0.0.0.0", int(sys.argv[1])), Channel) as server:
        server.serve_forever()
