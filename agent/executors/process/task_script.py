"""A task's order as steps for its shim: the whole of how a task of this executor is made, started and undone, in their order.

Nothing here touches the host but to ask it (who a user is, which directories are closed); no step is done here. Tasks of one
service differ in little more than their ids, so the text of one is kept as a template for the next.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from beeyard.agent.executors.process import additions, cgroups, kernel, launch, view
from beeyard.agent.executors.process.launch import LaunchError, User
from beeyard.agent.executors.process.order import END_FILE, SHIM_GONE, TASK_FILE, Order
from beeyard.agent.executors.process.script import Step, encode, pack, step, write
from beeyard.core.amounts import memory_text
from beeyard.runtime.stop_signal import signal_number

# 100 years: whoever asks for more means "never", and the kernel's times have an end.
_SECONDS_MAX = 3.2e9


def script_of(order: Order, user: User) -> bytes:
    """What goes to a task's shim.

    Raises:
        LaunchError, ExecutorError, OSError: say what of the order this host cannot serve.
    """
    hidden = view.covered(order)
    shape = _Shape(
        order._replace(task_id="", task=b"", hostname="", env=_APART, sysctls=_APART),
        tuple(order.env.items()),
        tuple(order.sysctls.items()),
    )
    text = _filled(_template(shape, user, hidden, order.places.hierarchies()), order)
    return pack(encode(_steps(order, user, hidden)) if text is None else text, order.task)


class _Shape(NamedTuple):
    """What tasks of one service have in common: an order without what is the task's own."""

    order: Order
    env: tuple[tuple[str, str], ...]
    sysctls: tuple[tuple[str, str], ...]

    def of(self, task_id: str, hostname: str) -> Order:
        """The order of a task."""
        return self.order._replace(task_id=task_id, hostname=hostname, env=dict(self.env), sysctls=dict(self.sysctls))


# In the order of a shape, where it has dictionaries of its own: a shape has to be hashable.
_APART: Any = ()
# In a template, for the task's id and its host name.
_ID, _HOSTNAME = "<task id>", "<host name>"


# 64: more services than a node has at a time; one takes 5 KB.
@functools.lru_cache(maxsize=64)
def _template(
    shape: _Shape, user: User, hidden: tuple[str, ...], hierarchies: tuple[cgroups.Hierarchy, ...]
) -> tuple[bytes, ...] | None:
    """The text for all tasks of a shape, cut where their own words go, which are every second part: `_ID` or `_HOSTNAME`.

    None: there is none, as those words occur in what somebody chose. `hierarchies` are not used; they are the host's.
    """
    if any(word.encode() in encode(_steps(shape.of("", ""), user, hidden)) for word in (_ID, _HOSTNAME)):
        return None
    text = encode(_steps(shape.of(_ID, _HOSTNAME), user, hidden))
    return tuple(re.split(f"({_ID}|{_HOSTNAME})".encode(), text))


def _filled(template: tuple[bytes, ...] | None, order: Order) -> bytes | None:
    """The text for one task; None: it has to be made from the beginning."""
    if template is None or "\0" in order.task_id or "\0" in order.hostname:
        return None
    try:
        words = {_ID.encode(): order.task_id.encode(), _HOSTNAME.encode(): order.hostname.encode()}
    except UnicodeEncodeError:
        return None
    return b"".join([words.get(part, part) for part in template])


def _steps(order: Order, user: User, hidden: tuple[str, ...]) -> list[Step]:
    stop_signal = signal_number(order.stop_signal)
    if not order.argv:
        raise LaunchError("image host needs a command to run")
    return [
        *_facts(order, user, stop_signal),
        *_prepare(order, user),
        *_undo(order),
        step("begin"),
        *_start(order, user, hidden),
    ]


def _nanoseconds(what: str, seconds: float) -> int:
    if seconds != seconds:
        raise LaunchError(f"{what} of {seconds} s is none: seconds have to be a number")
    return max(1, int(min(seconds, _SECONDS_MAX) * 1e9))


def _facts(order: Order, user: User, stop_signal: int) -> Iterator[Step]:
    """What the shim has to know, in the order of `native/order.h`."""
    places, task_id = order.places, order.task_id
    cgroup = places.cgroup(task_id)
    log = places.log(task_id) if order.keeps_output else os.devnull
    yield step(
        *("task", places.shim_dir(task_id), log, order.log_bytes_max, user.uid, user.gid),
        *(int(order.own_netns), stop_signal, _nanoseconds("a grace", order.grace_s)),
        *(_nanoseconds("a lease", order.lease_s), int(order.fence), cgroup.oom_file()),
    )
    limit = f" of {memory_text(order.limits.memory_bytes)}" if order.limits.memory_bytes else ""
    yield step(
        "say",
        f"killed: did not stop within {order.grace_s:g} s",
        f"stopped: no word from a manager for {order.lease_s:g} s",
        f"killed: memory limit{limit} reached",
        SHIM_GONE.to_json(),
    )


def _prepare(order: Order, user: User) -> Iterator[Step]:
    """Make everything that the task needs before its program."""
    places, task_id = order.places, order.task_id
    shim_dir, task_dir = places.shim_dir(task_id), places.task_dir(task_id)
    yield step("claim", shim_dir)
    yield from _join_shims(order)
    yield step("blob", f"{shim_dir}/{TASK_FILE}")
    yield from places.cgroup(task_id).make(order.limits)
    for path, mode in ((task_dir, 0o700), (f"{task_dir}/work", 0o700), (f"{task_dir}/tmp", 0o1777)):
        yield step("mkdir", path, mode)
    yield step("chown", f"{task_dir}/work", user.uid, user.gid)
    if order.own_netns:
        yield step("network")


def _join_shims(order: Order) -> Iterator[Step]:
    """On cgroup v2, leave the agent's cgroup, with which a service manager would kill the shim."""
    unified = tuple(h for h in order.places.hierarchies() if h.version == 2)
    if unified:
        shims = cgroups.TaskCgroup(unified, order.places.cgroup_parent, cgroups.SHIMS)
        yield from shims.make(cgroups.Limits())
        yield from shims.join()


def _undo(order: Order) -> Iterator[Step]:
    """Remove all but the log; the shim's directory last, as long as it is there the task is known."""
    places, task_id = order.places, order.task_id
    shim_dir, task_dir = places.shim_dir(task_id), places.task_dir(task_id)
    for path in places.cgroup(task_id).paths:
        yield step("drop-cgroup", path)
    for path in (f"{task_dir}/work", f"{task_dir}/tmp", task_dir):
        yield step("drop-tree", path)
    for name in (TASK_FILE, "sock", END_FILE):
        yield step("drop-file", f"{shim_dir}/{name}")
    yield step("drop-tree", shim_dir)


def _start(order: Order, user: User, hidden: tuple[str, ...]) -> Iterator[Step]:
    """What the child does to become the program."""
    yield from order.places.cgroup(order.task_id).join()
    yield step("unshare", kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    yield from view.hold(order)
    yield from additions.hold(order)
    yield from view.build(order, hidden, _sysctls(order), root=user.uid == 0)
    yield from additions.give(order, user)
    yield step("hostname", order.hostname)
    capabilities = sum(1 << number for number in launch.ROOT_CAPABILITIES) if user.uid == 0 else 0
    yield step("become", user.uid, user.gid, capabilities, *user.groups)
    yield from _program(order)


def _sysctls(order: Order) -> Iterator[Step]:
    """Settings of the task's own network, through its own /proc: in that of the host a file below /proc/sys/net is found the
    later the more networks there are."""
    if order.own_netns:
        # As Docker does: in a network of its own a task may use any port, and ping, without privileges.
        for name, value in (("ip_unprivileged_port_start", "0"), ("ping_group_range", "0 2147483647")):
            yield write(f"/proc/sys/net/ipv4/{name}", value)
    yield from additions.set_sysctls(order.sysctls)


def _program(order: Order) -> Iterator[Step]:
    home = f"{order.places.task_dir(order.task_id)}/work"
    env = {"PATH": launch.DEFAULT_PATH, "HOSTNAME": order.hostname, "HOME": home, **order.env}
    for name in order.unset:
        env.pop(name, None)
    program, path = order.argv[0], env.get("PATH", launch.DEFAULT_PATH)
    yield step("env", *(f"{name}={value}" for name, value in env.items()))
    yield step("argv", *order.argv)
    yield step("candidates", *launch.candidates(program, path))
    missing = "" if "/" in program else f"command {program} not found in PATH {path}"
    yield step("exec", order.dir or home, missing, f"cannot run command {program}")


__all__ = ["script_of"]
