"""Hosts on a LAN, made of network namespaces: what `./yard up` and the end-to-end tests run real daemons on.

A namespace `PREFIX-lan` holds a bridge that plays the switch, with the LAN's gateway address on it: the outside. Each host is
a namespace `PREFIX1`, `PREFIX2`, ... whose `eth0` hangs on that bridge. Everything is found by its name, so that whoever
comes later, after a crash or a power cut, can take it down.
"""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable
from pathlib import Path

# The bridge that plays the switch of a LAN.
SWITCH = "lan0"


def run(*command: str, check: bool = True) -> str:
    """Run a command and return what it printed.

    Raises:
        SystemExit: it failed and `check` is set; says which and why.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {result.stderr.strip() or f'exit code {result.returncode}'}")
    return result.stdout


def make_switch(netns: str, *addresses: str) -> None:
    """Make a namespace with a bridge that plays a switch, `SWITCH`, and has these addresses."""
    run("ip", "netns", "add", netns)
    inside = ("ip", "-n", netns)
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "link", "add", SWITCH, "type", "bridge")
    _address(netns, SWITCH, addresses)
    run(*inside, "link", "set", SWITCH, "up")


def plug_in(netns: str, switch: str, number: int, *addresses: str) -> None:
    """Give a namespace an `eth0` with these addresses, on port `number` of the switch in another one."""
    inside = ("ip", "-n", netns)
    peer = ("peer", "name", "eth0", "netns", netns)
    run("ip", "-n", switch, "link", "add", f"port{number}", "type", "veth", *peer)
    run("ip", "-n", switch, "link", "set", f"port{number}", "master", SWITCH, "up")
    run(*inside, "link", "set", "lo", "up")
    _address(netns, "eth0", addresses)
    run(*inside, "link", "set", "eth0", "up")


def _address(netns: str, link: str, addresses: Iterable[str]) -> None:
    for address in addresses:
        # Nobody else is there whose address it could be; without looking it can be used at once.
        run("ip", "-n", netns, "address", "add", address, "dev", link, *(["nodad"] if ":" in address else []))


class Lan:
    """One bridge and its hosts."""

    def __init__(self, prefix: str, subnet: str, subnet6: str = "fd77::/64") -> None:
        self.prefix = prefix
        self.subnet = ipaddress.ip_network(subnet)
        self.subnet6 = ipaddress.ip_network(subnet6)
        self.outside = f"{prefix}-lan"

    def host(self, number: int) -> str:
        """Name of the namespace of host `number`, from 1."""
        return f"{self.prefix}{number}"

    def address(self, number: int) -> str:
        """Address of host `number` on the LAN, without prefix length: the gateway is .1, hosts start at .11."""
        return str(self.subnet[10 + number])

    def up(self, n_hosts: int) -> None:
        """Make the switch and `n_hosts` hosts."""
        gateway6 = f"{self.subnet6[1]}/{self.subnet6.prefixlen}"
        make_switch(self.outside, f"{self.subnet[1]}/{self.subnet.prefixlen}", gateway6)
        # A router that leads nowhere says "unreachable" at once; silence would make every name look-up take seconds.
        for setting in ("ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/icmp_ratelimit=0"):
            name, _, value = setting.partition("=")
            run(*self.enter(self.outside), "sh", "-c", f"echo {value} >/proc/sys/net/{name}")
        for number in range(1, n_hosts + 1):
            self.add_host(number)

    def add_host(self, number: int) -> None:
        """Make host `number` and plug it in."""
        name = self.host(number)
        addresses = (
            f"{self.address(number)}/{self.subnet.prefixlen}",
            f"{self.subnet6[10 + number]}/{self.subnet6.prefixlen}",
        )
        run("ip", "netns", "add", name)
        plug_in(name, self.outside, number, *addresses)
        run("ip", "-n", name, "route", "add", "default", "via", str(self.subnet[1]))

    def names(self) -> list[str]:
        """The namespaces of this LAN that exist now."""
        listed = (line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip())
        return sorted(
            name
            for name in listed
            if name == self.outside or (name.startswith(self.prefix) and name[len(self.prefix) :].isdigit())
        )

    def down(self) -> None:
        """Remove all of it. Processes inside must have been stopped."""
        for name in self.names():
            run("ip", "netns", "delete", name)

    @staticmethod
    def enter(name: str, hostname: str | None = None) -> list[str]:
        """The command prefix that runs a program on a host.

        `nsenter` and not `ip netns exec`: the latter mounts a new /sys, which hides the cgroups.
        """
        command = ["nsenter", f"--net=/run/netns/{name}"]
        if hostname is not None:
            command += ["unshare", "--uts", "sh", "-c", f'hostname {hostname} && exec "$@"', "sh"]
        return command

    def exists(self) -> bool:
        """Whether anything of it is there."""
        return Path(f"/run/netns/{self.outside}").exists()
