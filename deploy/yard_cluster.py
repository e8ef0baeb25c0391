"""A whole cluster of real daemons on this one machine, each host a network namespace.

Host 1 runs the manager and an agent, the others an agent each. The daemons are the ones that run in production, with
configuration files of their own; only the hosts are namespaces (see `deploy.lan`). State is kept under
`/var/lib/beeyard/NAME`, one folder a daemon, process ids under `/run/beeyard/NAME`; `down` removes both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.lan import Lan, run

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
# Two hosts share a rack, as in a small machine room: yard1 and yard2 are r1, yard3 is r2.
HOSTS_PER_RACK = 2


@dataclasses.dataclass
class Daemon:
    """A process of the cluster, found again by its pid and start time."""

    name: str
    pid: int
    started: int  # field 22 of /proc/PID/stat: a pid that was taken over by somebody else has another

    @classmethod
    def of(cls, name: str, pid: int) -> Daemon:
        return cls(name, pid, start_time(pid) or 0)

    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def write_settings(config: Path, settings: Mapping[str, object]) -> bool:
    """Write a daemon's configuration file, unless somebody has changed it since it was written: False then.

    Its first line has a checksum of the others.
    """
    if config.exists():
        head, _, body = config.read_text().partition("\n")
        if not head.endswith(f" {_checksum(body)}"):
            return False
    body = "# What you change here stays until ./yard down, and counts when the daemon is started again.\n"
    body += "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    new = config.with_suffix(".new")
    new.write_text(f"# Written by ./yard up, {_checksum(body)}\n{body}")
    new.replace(config)
    return True


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class UnixHTTPConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class YardCluster:
    """The cluster called `name`, on the LAN `subnet`, with its Docker endpoint at `api_socket`."""

    def __init__(
        self,
        name: str = "yard",
        *,
        subnet: str = "10.77.0.0/24",
        subnet6: str = "fd77::/64",
        api_socket: str = "/run/beeyard/docker.sock",
        manager_settings: Mapping[str, object] = {},
        agent_settings: Mapping[str, object] = {},
    ) -> None:
        self.name = name
        self.lan = Lan(name, subnet, subnet6)
        self.api_socket = api_socket
        self.manager_settings = manager_settings  # more of their configuration files, by the setting's name
        self.agent_settings = agent_settings
        self.state = Path("/var/lib/beeyard") / name
        self.run_dir = Path("/run/beeyard") / name
        self.manager_address = f"tcp://{self.lan.address(1)}:2377"
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # those that this process started and must reap

    # --- daemons ----------------------------------------------------------------------------------------------------

    def daemons(self) -> dict[str, Daemon]:
        """What was started and not stopped by us, by name; some may be dead."""
        found = {}
        for path in sorted(self.run_dir.glob("*.pid")):
            with contextlib.suppress(ValueError, TypeError):
                found[path.stem] = Daemon(**json.loads(path.read_text()))
        return found

    def _start(
        self, name: str, host: str, command: str, settings: Mapping[str, object], environment: Mapping[str, str] = {}
    ) -> Daemon:
        """Start a daemon with a configuration file of its own: what is configured for this machine does not count."""
        config = self.state / f"{name}.toml"
        if not write_settings(config, settings):
            say(f"{config} was changed by hand and stays as it is")
        # For root alone: the log of an agent names what its tasks do.
        log = os.open(self.state / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        process = subprocess.Popen(
            [*Lan.enter(host, hostname=host), sys.executable, "-m", "beeyard", command, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
        os.close(log)
        self._children[name] = process
        daemon = Daemon.of(name, process.pid)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        (self.run_dir / f"{name}.pid").write_text(json.dumps(dataclasses.asdict(daemon)))
        return daemon

    def start_manager(self) -> Daemon:
        """Start the manager on host 1."""
        settings = {
            "state_dir": str(self.state / "manager"),
            "listen": self.manager_address,
            "api_socket": self.api_socket,
            "gossip_socket": f"unix://{self.run_dir}/gossip-manager.sock",
            **self.manager_settings,
        }
        return self._start("manager", self.lan.host(1), "manage", settings)

    def start_agent(self, number: int) -> Daemon:
        """Start the agent of host `number`; it joins when it has not done so before."""
        role = "Manager" if number == 1 else "Worker"
        # In the environment, where other users cannot read it as they can a command line.
        token = {"BEEYARD_AGENT_JOIN_TOKEN": self.get("/swarm")["JoinTokens"][role]}
        settings = {
            "state_dir": str(self.state / f"agent{number}"),
            "managers": [self.manager_address],
            "gossip_socket": f"unix://{self.run_dir}/gossip-agent{number}.sock",
            "hooks.directory": str(self.state / "hooks.d"),
            **self.agent_settings,
        }
        return self._start(f"agent{number}", self.lan.host(number), "join", settings, token)

    def kill(self, name: str, signal_number: int = signal.SIGTERM) -> None:
        """Send a daemon a signal and wait until it is gone.

        Raises:
            SystemExit: it does not go within 15 s.
        """
        daemon = self.daemons().get(name)
        if daemon is not None:
            if daemon.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(daemon.pid, signal_number)
            if name in self._children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._children.pop(name).wait(STOP_TIMEOUT_S)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while daemon.alive():
                if time.monotonic() > deadline:
                    raise SystemExit(f"{name} (pid {daemon.pid}) does not stop; see {self.state / name}.log")
                time.sleep(0.05)
        (self.run_dir / f"{name}.pid").unlink(missing_ok=True)

    @staticmethod
    def process_exists(pid: int) -> bool:
        """Whether a process is there and no zombie."""
        return start_time(pid) is not None

    # --- API --------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the Docker API.

        Raises:
            OSError: nobody answers.
            RuntimeError: the answer is an error; says which.
        """
        connection = UnixHTTPConnection(self.api_socket)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        answer = json.loads(content) if content.startswith((b"{", b"[", b'"')) else content.decode()
        if response.status >= 400:
            raise RuntimeError(answer["message"] if isinstance(answer, dict) else f"{path}: HTTP {response.status}")
        return answer

    def get(self, path: str) -> Any:
        """One GET of the Docker API, see `call`."""
        return self.call("GET", path)

    def wait_for_api(self) -> None:
        """Wait until the manager answers."""
        with self._patience("the manager does not answer", "manager") as attempts:
            for _ in attempts:
                with contextlib.suppress(OSError):
                    self.get("/_ping")
                    return

    def wait_for_nodes(self, n_nodes: int) -> None:
        """Wait until so many nodes are ready."""
        with self._patience(f"fewer than {n_nodes} nodes become ready", "agent1") as attempts:
            for _ in attempts:
                if sum(node["Status"]["State"] == "ready" for node in self.get("/nodes")) >= n_nodes:
                    return

    @contextlib.contextmanager
    def _patience(self, complaint: str, log: str) -> Iterator[Iterator[int]]:
        def attempts() -> Iterator[int]:
            deadline = time.monotonic() + START_TIMEOUT_S
            number = 0
            while time.monotonic() < deadline:
                yield number
                number += 1
                dead = [name for name, daemon in self.daemons().items() if not daemon.alive()]
                if dead:
                    raise SystemExit(f"{dead[0]} has ended:\n{self.tail(dead[0])}")
                time.sleep(0.1)
            raise SystemExit(f"{complaint} within {START_TIMEOUT_S:.0f} s:\n{self.tail(log)}")

        yield attempts()

    def tail(self, name: str, n_lines: int = 15) -> str:
        """The end of a daemon's log."""
        path = self.state / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(f"  {line}" for line in lines[-n_lines:])

    # --- whole ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time: a second one waits here."""
        lock = self.run_dir.with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def revive(self) -> bool:
        """Start what has ended of a cluster that was up; False when there is none. Its state stays as it is."""
        daemons = self.daemons()
        if "manager" not in daemons or not self.lan.exists():
            return False
        dead = [name for name in sorted(daemons, reverse=True) if not daemons[name].alive()]  # the manager first
        for name in dead:
            say(f"{name} had ended and is started again; its log is {self.state / name}.log")
            if name == "manager":
                self.start_manager()
                self.wait_for_api()
            else:
                self.start_agent(int(name.removeprefix("agent")))
        self.wait_for_nodes(len(daemons) - 1)
        return True

    def up(self, n_nodes: int) -> None:
        """Start a new cluster and return when all its nodes are ready and labelled."""
        if self.state.exists() or self.lan.exists():
            say("removing what an earlier cluster left")
        self.down()
        for path in (self.state, self.run_dir):
            path.mkdir(parents=True, mode=0o711)
        say(f"making {n_nodes} hosts on the LAN {self.lan.subnet}")
        self.lan.up(n_nodes)
        say("starting the manager")
        self.start_manager()
        self.wait_for_api()
        say(f"starting {n_nodes} agents")
        for number in range(1, n_nodes + 1):
            self.start_agent(number)
        self.wait_for_nodes(n_nodes)
        self._label_racks()

    @staticmethod
    def rack(number: int) -> str:
        """The rack of host `number`."""
        return f"r{(number - 1) // HOSTS_PER_RACK + 1}"

    def _label_racks(self) -> None:
        for node in self.get("/nodes"):
            number = int(node["Description"]["Hostname"].removeprefix(self.name))
            spec = node["Spec"]
            spec["Labels"] = {**(spec.get("Labels") or {}), "rack": self.rack(number)}
            self.call("POST", f"/nodes/{node['ID']}/update?version={node['Version']['Index']}", spec)

    def down(self) -> None:
        """Stop all daemons and tasks and remove what they made. Nothing there: nothing to do."""
        for daemon in self.daemons().values():
            if daemon.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(daemon.pid, signal.SIGTERM)  # all at once: each takes a moment
        for name in self.daemons():
            self.kill(name)
        for directory in sorted(self.state.glob("agent*")):
            if directory.is_dir():
                self._purge(directory)
        self.lan.down()
        for path in (self.state, self.run_dir):
            shutil.rmtree(path, ignore_errors=True)

    def _purge(self, directory: Path) -> None:
        """End the tasks of an agent that is gone, where it was: what it made for them is in that host's network.

        Without that host, in a network where nobody is: this machine's may have an agent of its own, and other purges.
        """
        host = directory.name.removeprefix("agent")
        where = ["unshare", "--net"]
        if host.isdigit() and self.lan.host(int(host)) in self.lan.names():
            where = Lan.enter(self.lan.host(int(host)))
        purge = (sys.executable, "-m", "beeyard", "join", "--purge")
        run(*where, *purge, "--config", f"{directory}.toml", "--state-dir", str(directory))


def say(text: str) -> None:
    """Tell the user what is happening."""
    print(f"yard: {text}", flush=True)
