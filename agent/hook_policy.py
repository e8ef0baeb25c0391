"""What node hooks may add to a task: the operator's allow-list, and what no list can allow.

A hook speaks for whoever wrote it; what it adds is bounded by the operator of the node, who wrote this list. Nothing here
takes a right: a list names what may be added, and an addition that is outside it refuses the task, by name. Whatever the
list says, these are never added: a sysctl that is not the task's own (it would change the whole node), a mount over /proc,
/sys or /dev, and a mount of or over Beeyard's own directories.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from beeyard.runtime.settings_declared import about, reloadable

# Sysctls that each IPC or UTS namespace has for itself; `net.` ones belong to the network namespace. As Docker has them.
# Source: Linux ipc/ipc_sysctl.c, ipc/mq_sysctl.c, kernel/utsname_sysctl.c
_OWN_SYSCTLS = (
    "kernel.domainname",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
)
_OWN_SYSCTL_PREFIXES = ("fs.mqueue.", "net.")
_SYSCTL = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_-]+)+")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KERNEL_DIRS = ("/proc", "/sys", "/dev")


class HookPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How this node calls its hooks, and what they may add to tasks. By default they may look, refuse, and add nothing."""

    # Read anew for each task. It need not exist.
    directory: Annotated[str, about("executables that are called for each task", group="node hooks")] = (
        "/etc/beeyard/hooks.d"
    )
    # A task waits so long for a hook that hangs, and three times as long at its end.
    timeout_s: Annotated[float, about("how long one call of one hook may take"), reloadable()] = 10.0
    # "GPU_*".
    allow_env: Annotated[
        tuple[str, ...], about("names of variables that hooks may add, `*` and `?` as wildcards"), reloadable()
    ] = ()
    # With * and ? too: "net.ipv4.tcp_*". Only those that the task has for itself can be allowed.
    allow_sysctls: Annotated[
        tuple[str, ...], about("sysctls of the task's own namespaces that they may set"), reloadable()
    ] = ()
    # Of this host, with all below them.
    allow_mounts: Annotated[
        tuple[str, ...], about("files and directories that they may mount, read-only"), reloadable()
    ] = ()
    # What is named here need not be named above.
    allow_writable_mounts: Annotated[
        tuple[str, ...], about("files and directories that they may mount for writing too"), reloadable()
    ] = ()
    # With * and ? too: "/dev/nvidia*".
    allow_devices: Annotated[tuple[str, ...], about("devices that they may add"), reloadable()] = ()

    def faults(self) -> list[str]:
        """What cannot be meant like that, a sentence each."""
        found = []
        if not 0 < self.timeout_s <= 3600:
            found.append(f"timeout_s is {self.timeout_s:g}: it must be above 0 and at most 3600 seconds")
        paths = {"allow_mounts": self.allow_mounts, "allow_writable_mounts": self.allow_writable_mounts}
        paths |= {"allow_devices": self.allow_devices, "directory": (self.directory,)}
        for field, values in paths.items():
            wrong = [value for value in values if not is_clean_path(value)]
            found += [f"{field} has {value!r}: an absolute path without '..' is right" for value in wrong]
        return found


def is_clean_path(path: str) -> bool:
    """Whether a path is absolute and says what it means: no `..`, no doubled or trailing slash, no NUL."""
    return path.startswith("/") and posixpath.normpath(path) == path and not path.startswith("//") and "\0" not in path


def within(path: str, parent: str) -> bool:
    """Whether a clean path is `parent` or below it."""
    return path == parent or path.startswith(f"{parent.rstrip('/')}/")


def env_fault(policy: HookPolicy, name: str, value: str) -> str:
    """Why a variable may not be added, "" when it may."""
    if not _ENV_NAME.fullmatch(name) or "\0" in value:
        return f"may not add env {name[:100]!r}: letters, digits and '_' make a name, and a value has no NUL"
    return "" if _matches(name, policy.allow_env) else _refusal(f"env {name}", "env", policy.allow_env)


def sysctl_fault(policy: HookPolicy, name: str, value: str, *, own_network: bool) -> str:
    """Why a sysctl may not be added, "" when it may. `own_network`: the task does not use its host's."""
    if not _SYSCTL.fullmatch(name) or "\0" in value or "\n" in value:
        return f"may not add sysctl {name[:100]!r}: names joined by dots are right, and a value of one line"
    if name not in _OWN_SYSCTLS and not name.startswith(_OWN_SYSCTL_PREFIXES):
        return (
            f"may not add sysctl {name}: it belongs to the whole node and not to the task; net.*, fs.mqueue.* and the \
IPC limits of kernel.* are the task's own"
        )
    if name.startswith("net.") and not own_network:
        return f"may not add sysctl {name}: the task uses its host's network"
    return "" if _matches(name, policy.allow_sysctls) else _refusal(f"sysctl {name}", "sysctls", policy.allow_sysctls)


def source_fault(policy: HookPolicy, asked: str, real: str, *, read_only: bool, own_dirs: Sequence[str]) -> str:
    """Why a path of this host may not be mounted, "" when it may. `real`: `asked` without symbolic links."""
    shown = asked if asked == real else f"{asked} (which is {real})"
    for own in own_dirs:
        if within(real, own) or within(own, real):
            return f"may not add mount {shown}: Beeyard keeps its own things in {own}"
    allowed = (*policy.allow_mounts, *policy.allow_writable_mounts)
    if not any(within(real, path) for path in allowed):
        return _refusal(f"mount {shown}", "mounts of", allowed)
    if not read_only and not any(within(real, path) for path in policy.allow_writable_mounts):
        return _refusal(f"writable mount {shown}", "writable mounts of", policy.allow_writable_mounts)
    return ""


def target_fault(target: str, *, own_dirs: Sequence[str]) -> str:
    """Why nothing may be mounted there, "" when it may."""
    if not is_clean_path(target) or target == "/":
        return f"may not mount at {target!r}: an absolute path below / and without '..' is right"
    for path in (*_KERNEL_DIRS, *own_dirs):
        if within(target, path) or within(path, target):
            return f"may not mount at {target}: {path} is never covered"
    return ""


def device_fault(policy: HookPolicy, asked: str, real: str) -> str:
    """Why a device may not be added, "" when it may."""
    if not within(real, "/dev"):
        return f"may not add device {asked}: it must be below /dev"
    # Both: a link that the list does not know, and one that leads to another device than the list means.
    for path in (asked, real):
        if not _matches(path, policy.allow_devices):
            shown = asked if asked == real else f"{asked} (which is {real})"
            return _refusal(f"device {shown}", "devices", policy.allow_devices)
    return ""


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _refusal(what: str, kind: str, allowed: Sequence[str]) -> str:
    listed = f"{kind} {', '.join(allowed)}" if allowed else f"no {kind.removesuffix(' of')}"
    return f"may not add {what}: the agent's configuration allows {listed}"


__all__ = [
    "HookPolicy",
    "device_fault",
    "env_fault",
    "is_clean_path",
    "source_fault",
    "sysctl_fault",
    "target_fault",
    "within",
]
