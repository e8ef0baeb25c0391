"""Finding and ending what tasks left behind, by the task id that all of it carries.

Processes carry it in their cgroup's name and, shims, in their command line; files in their directory's name.
Runs in a short-lived child of the helper, where blocking is allowed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from beeyard.agent.executors.process import cgroups, kernel
from beeyard.agent.executors.process.order import SHIM_TITLE, TASK_FILE, Exit, Places, load_exit
from beeyard.runtime.real_silence import silence_links

# 5 s: killed processes end within milliseconds; one that waits for a dead disk does not end at all.
DEATH_S = 5.0


def remove_tree(path: str) -> None:
    """Remove a directory with all in it. A missing one is fine.

    Works whatever a task built there: directories are emptied through descriptors, so no link leads out, and
    subdirectories are moved up and not descended into, so no depth is too deep.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        n_moved = 0
        while entries := os.listdir(top):
            for entry in entries:
                try:
                    os.unlink(entry, dir_fd=top)
                    continue
                except IsADirectoryError:
                    pass
                inner = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for name in os.listdir(inner):
                        try:
                            os.unlink(name, dir_fd=inner)
                        except IsADirectoryError:
                            n_moved += 1
                            os.rename(name, f".removed-{os.getpid()}-{n_moved}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(entry, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def connect(directory: str) -> socket.socket | None:
    """A connection to the shim that listens in a directory, None when there is none. Never waits: for a shim that hangs, and
    has no room for one more, it gives a socket that is not connected.

    The path goes through a descriptor: a socket's path may have 107 bytes only.
    """
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.setblocking(False)
    try:
        with contextlib.suppress(BlockingIOError):
            client.connect(f"/proc/self/fd/{fd}/sock")
        client.setblocking(True)
        return client
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    finally:
        os.close(fd)


def processes(places: Places) -> dict[str, list[int]]:
    """Shims of this agent's tasks, by task id."""
    found: dict[str, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read(4096).rstrip(b"\0").decode(errors="replace").split("\0")
        except OSError:
            continue
        if len(words) == 3 and words[0] == SHIM_TITLE and words[1] == places.state_dir:
            found.setdefault(words[2], []).append(int(entry))
    return found


def kill(places: Places, task_id: str, pids: list[int]) -> None:
    """End every process of a task and wait until they are gone."""
    cgroup = places.cgroup(task_id)
    for pid in pids:
        _kill(pid)
    cgroup.kill()
    deadline = time.monotonic() + DEATH_S
    while time.monotonic() < deadline:
        if not cgroup.pids() and not any(_runs(pid) for pid in pids):
            return
        time.sleep(0.002)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    """Whether a process exists and is not only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def bury(places: Places, task_id: str, pids: list[int] | None = None) -> Exit | None:
    """End what a shim that was killed left running; gives how the task ended, None when it never started.

    Cgroup and files stay for `clean`, so that the next life of the agent can still tell.
    """
    kill(places, task_id, processes(places).get(task_id, []) if pids is None else pids)
    return load_exit(places.shim_dir(task_id))


def clean(places: Places, task_id: str, pids: list[int] | None = None) -> None:
    """End and remove all of a task but its log. Idempotent: yes."""
    kill(places, task_id, processes(places).get(task_id, []) if pids is None else pids)
    remove(places, task_id, places.cgroup(task_id))


def remove(places: Places, task_id: str, cgroup: cgroups.TaskCgroup) -> None:
    """Remove all of a task but its log and its shim's process; the shim's directory last, as long as it is there the task
    is known. Idempotent: yes."""
    cgroup.remove()
    remove_tree(places.task_dir(task_id))
    remove_tree(places.shim_dir(task_id))


def take_links_down(netns: int) -> None:
    """Take the links of a namespace down whose shim cannot. Moves this process there."""
    kernel.enter_namespace(netns, kernel.CLONE_NEWNET)
    silence_links()


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def sweep(places: Places, spared: frozenset[str]) -> dict[str, list[str]]:
    """Sort out all that is here but the spared tasks.

    Returns:
        "live": tasks with a shim; "ended": those with an end to tell; "cleaned": the rest, of which nothing is left.
    """
    by_task = processes(places)
    known = {*_names(f"{places.state_dir}/shims"), *_names(f"{places.state_dir}/tasks"), *by_task}
    known.update(cgroups.children(places.hierarchies(), places.cgroup_parent))
    found: dict[str, list[str]] = {"live": [], "ended": [], "cleaned": []}
    for task_id in sorted(known - spared):
        shim = connect(places.shim_dir(task_id))
        if shim is not None:
            shim.close()
            found["live"].append(task_id)
        elif (
            os.path.exists(f"{places.shim_dir(task_id)}/{TASK_FILE}")
            and bury(places, task_id, by_task.get(task_id, [])) is not None
        ):
            found["ended"].append(task_id)
        else:
            clean(places, task_id, by_task.get(task_id, []))
            found["cleaned"].append(task_id)
    return found


__all__ = ["bury", "clean", "connect", "processes", "remove", "remove_tree", "sweep", "take_links_down"]
