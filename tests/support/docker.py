"""The stock `docker` client, pointed at a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

# `docker service create` watches for so long whether what runs goes on; for five seconds if it is not told.
WATCHED = ("--update-monitor", "500ms")
# For how long freed addresses rest where a test waits for that.
COOL_DOWN_S = 5.0
# The pools of the racks in the example that the tests, the README and `./yard up` share.
RACK_RANGES = {"r1": "10.77.0.64/26", "r2": "10.77.0.128/26"}


def rack_network_commands() -> Iterator[tuple[str, ...]]:
    """The docker commands that make a pool for each rack, and the network `lan` that draws from all."""
    for rack, ip_range in RACK_RANGES.items():
        yield (
            *("network", "create", "--config-only", "--subnet", "10.77.0.0/24", "--ip-range", ip_range),
            *("--gateway", "10.77.0.1", "-o", "parent=eth0", "--label", "beeyard.config=racks"),
            *("--label", f"beeyard.nodes=node.labels.rack=={rack}", f"lan-{rack}"),
        )
    yield ("network", "create", "-d", "macvlan", "--scope", "swarm", "--config-from", "racks", "lan")


class Docker:
    """Runs `docker ...` against one endpoint."""

    def __init__(self, api_socket: str) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "DOCKER_HOST": f"unix://{api_socket}",
            "DOCKER_CONFIG": "/nonexistent/docker-config",
            "HOME": "/nonexistent",
        }

    def run(self, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run and return the outcome, whatever it is.

        Clients before 23 reword a 404; what the server said is put back, so that tests run with Debian's client too.
        """
        result = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, env=self.environment, timeout=timeout_s, check=False
        )
        result.stderr = re.sub(r"Error: No such (node|service|network): (\S+)", r"\1 \2 not found", result.stderr)
        return result

    def __call__(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run, expect success without a warning, and return what was printed."""
        result = self.run(*arguments, timeout_s=timeout_s)
        assert result.returncode == 0, f"docker {' '.join(arguments)}: {result.stderr}{result.stdout}"
        assert result.stderr == "", f"docker {' '.join(arguments)} warned: {result.stderr}"
        return result.stdout.strip()

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        """Start and return at once."""
        return subprocess.Popen(
            ["docker", *arguments], env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def inspect(self, kind: str, *names: str) -> list[dict[str, Any]]:
        """`docker inspect --type KIND`, decoded."""
        found: list[dict[str, Any]] = json.loads(self("inspect", "--type", kind, *names)) if names else []
        return found

    def tasks(self, service: str, *, desired: str = "") -> list[dict[str, Any]]:
        """The tasks of a service, newest states, optionally of one desired state."""
        filters = ("--filter", f"desired-state={desired}") if desired else ()
        return self.inspect("task", *self("service", "ps", "-q", "--no-trunc", *filters, service).split())

    def running(self, service: str) -> list[dict[str, Any]]:
        """The tasks of a service that run and should."""
        return [task for task in self.tasks(service, desired="running") if task["Status"]["State"] == "running"]

    def used_addresses(self, network: str) -> int:
        """How many addresses of a network's pools are held by tasks."""
        (shown,) = self.inspect("network", network)
        return sum(pool["Used"] for pool in shown["Status"]["IPAM"]["Pools"].values())


def addresses_of(task: dict[str, Any]) -> list[str]:
    """A task's addresses, without prefix length."""
    attachments = task.get("NetworksAttachments") or []
    return [address.partition("/")[0] for attachment in attachments for address in attachment["Addresses"]]


def eventually(question: Callable[[], Any], *, within_s: float, every_s: float = 0.25) -> Any:
    """Ask until the answer is true and return it; fail with the last answer.

    A question that fails, or looks for what is not there at the moment, is asked again as well.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            answer = question()
            problem = f"still {answer!r}"
            if answer:
                return answer
        except (AssertionError, LookupError) as error:
            problem = f"{type(error).__name__}: {error}"
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {problem}")
        time.sleep(every_s)
