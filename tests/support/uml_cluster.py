"""Three UML hosts with systemd, each with the units of `deploy/systemd`, as one cluster; driven from outside.

Host 1 runs the manager and an agent, the others an agent. Their state is on their disks, so that it outlives a power cut;
their configuration in /etc/beeyard is written at each boot.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import socketserver
import sys
import threading

from deploy.uml_channel import copy
from deploy.uml_host import HERE, UmlError, UmlHost, UmlLan, compile_tree, own_directory
from tests.support.docker import Docker, eventually

API_SOCKET = "/run/beeyard/docker.sock"
N_HOSTS = 3
READY_S = 120.0
# A daemon takes five seconds to start on such a host, and twenty when others use this machine too: not long enough to be
# taken for dead.
HEARTBEAT_S = 12.0
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# As installed in /opt/beeyard: the manager, without rights, may be unable to reach the virtual environment where it is.
_BEEYARD = f"""#!/bin/sh
export PYTHONPATH=/opt/beeyard/tree/src:/opt/beeyard/tree/.venv/lib/{_PYTHON}/site-packages
export LD_LIBRARY_PATH=/opt/beeyard/python/lib
exec /opt/beeyard/python/bin/{_PYTHON} -m beeyard "$@"
"""


def installed_files(*units: str) -> dict[str, str]:
    """What installing Beeyard puts on a host, with these units enabled."""
    source = HERE / "systemd"
    files = {
        **{
            f"etc/systemd/system/{path.name}": path.read_text()
            for path in source.glob("*.s*")
            if path.suffix in (".service", ".socket")
        },
        "etc/sysusers.d/beeyard.conf": (source / "beeyard.sysusers").read_text(),
        "etc/tmpfiles.d/beeyard.conf": (source / "beeyard.tmpfiles").read_text(),
        "opt/beeyard/bin/beeyard": _BEEYARD,
    }
    for unit in units:
        target = "sockets" if unit.endswith(".socket") else "multi-user"
        files[f"etc/systemd/system/{target}.target.wants/{unit}"] = f"-> ../{unit}"
    return files


class Forward(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A unix socket out here that leads to one inside a host."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, host: UmlHost, inner: str) -> None:
        self._open: set[socket.socket] = set()
        forward = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError), host.connect(inner) as there:
                    there.settimeout(None)
                    both = {there, self.request}
                    forward._open |= both
                    back = threading.Thread(target=copy, args=(there, self.request), daemon=True)
                    back.start()
                    copy(self.request, there)
                    back.join()
                    forward._open -= both

        super().__init__(path, Connection)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client or a host that went away is no news."""

    def drop(self) -> None:
        """Break what is open: a host without power answers nothing, not even that it is gone."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class UmlCluster:
    """The cluster on the LAN `PREFIX-lan`."""

    def __init__(self, prefix: str, subnet: str = "10.79.0.0/24", subnet6: str = "fd79::/64") -> None:
        self.lan = UmlLan(prefix, subnet, subnet6)
        self.directory = own_directory(prefix)
        agent = f'managers = ["tcp://{self.lan.address(1)}:2377"]\njoin_token_file = "/etc/beeyard/join-token"\n'
        self.hosts = {}
        for number in range(1, N_HOSTS + 1):
            units = [
                "beeyard-launcher.socket",
                "beeyard-agent.service",
                *(["beeyard-manager.service"] if number == 1 else []),
            ]
            name = f"{prefix}{number}"
            files = {
                **installed_files(*units),
                "etc/beeyard/agent.toml": agent,
                "etc/beeyard/manager.toml": f"heartbeat_s = {HEARTBEAT_S}\n",
            }
            self.hosts[name] = UmlHost(
                name, self.directory / name, lan=self.lan, number=number, files=files, systemd=True
            )
        self.manager_host = next(iter(self.hosts.values()))
        self.forward: Forward | None = None
        self.docker = Docker(str(self.directory / "docker.sock"))

    def up(self) -> None:
        """Boot all, with the join token that the manager gives, and wait until every node is ready."""
        compile_tree()
        self.lan.down()
        self.lan.up(0)
        first, *others = self.hosts.values()
        # Its agent starts at its next boots; now there is no token yet that would let it in.
        at_boot = first.files.pop("etc/systemd/system/multi-user.target.wants/beeyard-agent.service")
        first.boot()
        first.files["etc/systemd/system/multi-user.target.wants/beeyard-agent.service"] = at_boot
        self.forward = Forward(str(self.directory / "docker.sock"), first, API_SOCKET)
        first.wait_until_up()
        self.wait_for_manager()
        # A worker's token will do on the manager's host too: the agent is a node like any other.
        token = self.docker("swarm", "join-token", "-q", "worker")
        for host in self.hosts.values():
            host.files["etc/beeyard/join-token"] = token + "\n"
        for host in others:
            host.boot()
        start = "umask 077; cat >/etc/beeyard/join-token; systemctl enable --now --no-block beeyard-agent"
        first("sh", "-c", start, input=token)
        for host in others:
            host.wait_until_up()
        self.wait_for_nodes()

    def wait_for_manager(self) -> None:
        """Wait until the API answers."""
        try:
            eventually(lambda: self.docker.run("version").returncode == 0, within_s=READY_S)
        except AssertionError as error:
            raise UmlError(f"{error}\n{self.journal(self.manager_host)}") from None

    def wait_for_nodes(self, n_nodes: int = N_HOSTS) -> None:
        """Wait until so many nodes are ready."""
        try:
            eventually(lambda: sorted(self.states().values()).count("ready") == n_nodes, within_s=READY_S)
        except AssertionError as error:
            raise UmlError(f"{error}: {self.states()}\n{self.journals()}") from None

    def states(self) -> dict[str, str]:
        """Each node's state, by its host name."""
        nodes = self.docker.inspect("node", *self.docker("node", "ls", "-q").split())
        return {node["Description"]["Hostname"]: node["Status"]["State"] for node in nodes}

    def node_names(self) -> dict[str, str]:
        """Host names by node id."""
        nodes = self.docker.inspect("node", *self.docker("node", "ls", "-q").split())
        return {node["ID"]: node["Description"]["Hostname"] for node in nodes}

    def power_cut(self, host: UmlHost) -> None:
        """Cut one host off from power."""
        host.power_cut()
        if host is self.manager_host and self.forward is not None:
            self.forward.drop()

    def journal(self, host: UmlHost, n_lines: int = 40) -> str:
        """The end of a host's journal, or of its console when it does not answer."""
        with contextlib.suppress(OSError, UmlError):
            return f"journal of {host.name}:\n" + host(
                "journalctl", "--no-pager", "-o", "short-monotonic", "-n", str(n_lines)
            )
        return host.tail()

    def journals(self) -> str:
        """The end of every host's."""
        return "\n".join(self.journal(host) for host in self.hosts.values())

    def down(self) -> None:
        """Switch all off and remove everything."""
        if self.forward is not None:
            self.forward.drop()
            self.forward.shutdown()
            self.forward.server_close()
        for host in self.hosts.values():
            host.remove()
        self.lan.down()
        shutil.rmtree(self.directory, ignore_errors=True)
