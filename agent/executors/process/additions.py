"""What this node adds to a task beside what its spec asks for: sysctls, files of this host, devices.

That all of it is allowed was decided before (`agent.hook_policy`); `native/addition.c` says how a shim keeps it from becoming
something else on the way.

* A sysctl is written in the task's own namespaces, by a process that is in them already.
* A mount is of one file system (what is mounted below the source is not seen), never with set-user-id programs or devices,
  and keeps `noexec` and `read-only` of where it comes from. Its target has to exist, except below /tmp and /var/tmp, which
  are the task's own: a task's root is this host's, and nothing is made there.
* A device gets a node of its own in the task's /dev, which belongs to the task's user.

This executor bounds devices by what the task's /dev holds and by `nodev` elsewhere, and not by a cgroup: where the agent
itself is bounded by one (systemd's DevicePolicy=), that one may bound its tasks as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from beeyard.agent.executors.process import view
from beeyard.agent.executors.process.launch import User
from beeyard.agent.executors.process.order import Order
from beeyard.agent.executors.process.script import Step, step


def set_sysctls(sysctls: dict[str, str]) -> Iterator[Step]:
    """Write sysctls of the namespaces in which this is done."""
    for name, value in sysctls.items():
        assert "/" not in name, name
        said = f"cannot set sysctl {name} to {value[:100]!r}"
        yield step("write", f"/proc/sys/{name.replace('.', '/')}", f"{value}\n", 0, said)


def hold(order: Order) -> Iterator[Step]:
    """Open what is to be mounted, and look at the devices, where this host's files are still seen."""
    for place, bind in enumerate(order.binds, view.N_HELD):
        yield step("walk", place, bind.source, "mount source")
    for place, device in enumerate(order.devices, view.N_HELD + len(order.binds)):
        yield step("look", place, device)


def give(order: Order, user: User) -> Iterator[Step]:
    """Put it into the task's view, which has been made."""
    for place, device in enumerate(order.devices, view.N_HELD + len(order.binds)):
        yield step("give-device", place, device, user.uid, user.gid)
    for place, bind in enumerate(order.binds, view.N_HELD):
        yield step("bind", place, bind.target, int(bind.read_only))


__all__ = ["give", "hold", "set_sysctls"]
