"""A daemon between the signals of its service manager, which a socket plays here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 30.0


class Service:
    """A manager daemon with what a service manager gives it."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "manager.toml"
        self.log = directory / "log"
        self._settings = (
            f'state_dir = "{directory}/state"\nlisten = "127.0.0.1:0"\napi_socket = "{directory}/docker.sock"\n'
        )
        self.configure("")
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(directory / "notify"))
        self.notifications.settimeout(PATIENCE_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(directory / "notify"), "WATCHDOG_USEC": "600000"}
        command = [sys.executable, "-m", "beeyard", "manage", "--config", str(self.config)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def configure(self, more: str) -> None:
        self.config.write_text(self._settings + more)

    def wait_for(self, line: str) -> dict[str, str]:
        """The first message that has the line."""
        while True:
            message = self.notifications.recv(65536).decode()
            if line in message.splitlines():
                return dict(part.split("=", 1) for part in message.splitlines())

    def wait_for_log(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.notifications.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.end()


def test_a_daemon_tells_when_it_is_ready_lives_reloads_and_stops(service: Service) -> None:
    """READY once it serves, signs of life from its loop, reloads that may fail, and STOPPING."""
    assert "agents connect to 127.0.0.1:" in service.wait_for("READY=1")["STATUS"]
    for _ in range(3):
        service.wait_for("WATCHDOG=1")

    service.configure('log_level = "debug"\nnode_name = "other"\n')
    service.process.send_signal(signal.SIGHUP)
    assert int(service.wait_for("RELOADING=1")["MONOTONIC_USEC"]) > 0
    service.wait_for("READY=1")
    service.wait_for_log("settings=node_name")
    service.wait_for_log("changed=log_level")

    service.configure("log_level = 3\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for("RELOADING=1")
    service.wait_for("READY=1")
    service.wait_for_log("manager.toml: log_level: 3 is not right")
    service.wait_for("WATCHDOG=1")

    service.process.send_signal(signal.SIGTERM)
    service.wait_for("STOPPING=1")
    assert service.process.wait(PATIENCE_S) == 0


def test_a_loop_that_hangs_is_not_heard_any_more(service: Service) -> None:
    """What the watchdog hears comes from the loop itself."""
    service.wait_for("READY=1")
    service.process.send_signal(signal.SIGSTOP)
    service.notifications.settimeout(2.0)  # ten times the interval at which it is heard
    with pytest.raises(TimeoutError):
        service.wait_for("nothing that it says")
    service.process.send_signal(signal.SIGCONT)
    service.notifications.settimeout(PATIENCE_S)
    service.wait_for("WATCHDOG=1")
