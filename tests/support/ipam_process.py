"""A real IPAM plugin: a process of its own, built on the helper library that other people's plugins use.

    python -m tests.support.ipam_process SOCKET BOOKS FAULT

It keeps its books in the file BOOKS, and before each question about an address reads from the file FAULT what to do wrong:
"slow", "twice", "outside", "error", or nothing. `IpamProcess` starts, kills, stops and continues it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.plugin_books import Books, Refused

SLOW_S = 1.0


class IpamProcess:
    """The process, from outside."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.socket = directory / f"{name}.sock"
        self.books = directory / f"{name}.json"
        self._fault = directory / f"{name}.fault"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.behave()
        arguments = [str(path) for path in (self.socket, self.books, self._fault)]
        self._process = subprocess.Popen([sys.executable, "-m", "tests.support.ipam_process", *arguments])
        deadline = time.monotonic() + 30
        while not self._listens():
            assert time.monotonic() < deadline, "the plugin does not start"
            time.sleep(0.05)

    def behave(self, fault: str = "") -> None:
        """Do this wrong from now on, or nothing."""
        self._fault.write_text(fault)

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """End it without a warning. Idempotent."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        """SIGSTOP: it accepts connections, by the kernel, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def addresses(self) -> dict[str, str]:
        """What its books say: who has which address."""
        return {ip: who for _, ip, who in json.loads(self.books.read_text())["held"]}

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
            return True


def load(path: Path) -> Books:
    """The books as they were left. Addresses of a pool: r1 gets .64-.127, r2 .128-.191, by the node's label."""
    books = Books(label="rack", by_label={"r1": (64, 127), "r2": (128, 191)})
    if path.exists():
        stored = json.loads(path.read_text())
        books.pools, books.n_pools = stored["pools"], stored["n_pools"]
        books.held = {(pool, ip): who for pool, ip, who in stored["held"]}
    return books


def save(path: Path, books: Books) -> None:
    held = [[pool, ip, who] for (pool, ip), who in books.held.items()]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"pools": books.pools, "n_pools": books.n_pools, "held": held}))
    new.replace(path)


def main() -> None:
    """The process."""
    import flask
    import waitress
    from docker_plugin_api import IpamDriverEntities as entities
    from docker_plugin_api import Plugin

    socket_path, books_path, fault_path = (Path(argument) for argument in sys.argv[1:])
    books, lock = load(books_path), threading.Lock()
    app = Plugin.Blueprint("IpamDriver", __name__)

    def serve(method: str, act: Any, entity: Any) -> None:
        def handler() -> Any:
            # As plugins on this library do: a key that is not documented is a TypeError, and the caller sees status 500.
            body = vars(entity(**flask.request.get_json(force=True)))
            fault = fault_path.read_text() if method == "RequestAddress" else ""
            if fault == "slow":
                time.sleep(SLOW_S)
            with lock:
                if fault == "error":
                    return {"Error": "database is locked"}
                if fault == "outside":
                    return {"Address": "192.0.2.99/24", "Data": {}}
                if fault == "twice":
                    return {"Address": f"{list(books.held)[-1][1]}/24", "Data": {}}
                try:
                    found = act(books, body)
                except Refused as refused:
                    return {"Error": str(refused)}
                save(books_path, books)
                return found

        app.route(f"/IpamDriver.{method}", methods=["POST"], endpoint=method)(handler)

    serve("RequestPool", Books.request_pool, entities.RequestPoolEntity)
    serve("ReleasePool", Books.release_pool, entities.ReleasePoolEntity)
    serve("RequestAddress", Books.request_address, entities.RequestAddressEntity)
    serve("ReleaseAddress", Books.release_address, entities.ReleaseAddressEntity)

    @app.route("/IpamDriver.GetCapabilities", methods=["POST"])
    def GetCapabilities() -> Any:
        return {"RequiresMACAddress": False, "RequiresRequestReplay": False}

    @app.route("/IpamDriver.GetDefaultAddressSpaces", methods=["POST"])
    def GetDefaultAddressSpaces() -> Any:
        return {"LocalDefaultAddressSpace": "local", "GlobalDefaultAddressSpace": "global"}

    server = flask.Flask("ipam")
    Plugin.functions.append("IpamDriver")
    server.register_blueprint(Plugin.app)
    server.register_blueprint(app)
    if socket_path.exists():
        os.unlink(socket_path)
    waitress.serve(server, unix_socket=str(socket_path), threads=8)


if __name__ == "__main__":
    main()
