"""What exists on one host of a real cluster because of tasks, seen by the kernel and not by the agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import trio

from beeyard.agent.executors.process import cgroups, remains
from beeyard.agent.executors.process.executor import ProcessExecutor
from beeyard.runtime.sqlite_database import SqliteDatabase
from deploy.lan import run
from deploy.yard_cluster import YardCluster
from tests.support.docker import addresses_of


class NodeSurvey:
    """Looks at the tasks of host `number`, whose programs are those with `marker` among their arguments."""

    def __init__(self, cluster: YardCluster, number: int, marker: str) -> None:
        self._cluster = cluster
        self._name = f"agent{number}"
        self._marker = marker
        self.state = cluster.state / self._name
        self.places = ProcessExecutor(f"{self.state}/process", f"{self.state}/log").places

    def shims(self) -> dict[str, list[int]]:
        """Pids of the shims, by task."""
        return remains.processes(self.places)

    def programs(self) -> dict[str, list[int]]:
        """Pids of the tasks' programs, by the task whose cgroup they are in; "": by none, which is not right."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._is_program(entry):
                    cgroup = (entry / "cgroup").read_text()
                    if self._is_program(entry):  # else it was dying, and out of its cgroup already
                        found.setdefault(self._task_of(cgroup), []).append(int(entry.name))
            except OSError:
                continue
        return found

    def _is_program(self, process: Path) -> bool:
        return self._marker.encode() in (process / "cmdline").read_bytes().split(b"\0")[1:]

    def _task_of(self, cgroup: str) -> str:
        """The task in whose cgroup a process is, by the text of its /proc/PID/cgroup."""
        paths = [line.rpartition(":")[2] for line in cgroup.splitlines()]
        # The kernel says so of one that was removed while the process dies.
        names = {
            path.rpartition("/")[2].removesuffix(" (deleted)")
            for path in paths
            if f"{self.places.cgroup_parent}/" in path
        }
        return names.pop() if len(names) == 1 else ""

    def zygotes(self) -> list[int]:
        """Pids of the processes that fork for this agent."""
        title = f"beeyard-zygote\0{self.places.state_dir}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(title):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def addresses(self, shim: int) -> list[str]:
        """IPv4 addresses of links that are up in a shim's network namespace, loopback left out."""
        shown = json.loads(run("nsenter", f"--net=/proc/{shim}/ns/net", "ip", "-j", "-4", "address", "show", "up"))
        return [a["local"] for link in shown if link.get("ifname") != "lo" for a in link.get("addr_info", ())]

    def check(self, running: list[dict[str, Any]], known: list[dict[str, Any]]) -> None:
        """There is one of everything for each running task, as the API shows it, and nothing of any other.

        The agent remembers how a task ended for as long as the manager does: that of `known` ones alone.
        """
        task_ids = sorted(task["ID"] for task in running)
        shims = self.shims()
        assert sorted(shims) == task_ids
        assert {task_id: len(pids) for task_id, pids in shims.items()} == dict.fromkeys(task_ids, 1)
        expected = {task["ID"]: [task["Status"]["ContainerStatus"]["PID"]] for task in running}
        assert self.programs() == expected
        addresses = {task["ID"]: addresses_of(task) for task in running}
        assert {task_id: self.addresses(pid) for task_id, (pid,) in shims.items()} == addresses
        found = cgroups.children(self.places.hierarchies(), self.places.cgroup_parent)
        assert sorted({name for name in found if name != cgroups.SHIMS}) == task_ids
        for directory in (f"{self.places.state_dir}/shims", f"{self.places.state_dir}/tasks"):
            assert sorted(os.listdir(directory)) == task_ids, directory
        assert set(task_ids) <= self.records() <= {task["ID"] for task in known}
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        assert [line for line in mounts if str(self.state) in line] == []
        assert self.namespaces_held() == sorted(os.readlink(f"/proc/{pid}/ns/net") for (pid,) in shims.values())

    def records(self) -> set[str]:
        """Ids of the tasks that the agent keeps a record of. It has the database to itself, so a copy is read."""

        async def read(path: str) -> set[str]:
            database = await SqliteDatabase.open(path)
            _, records = await database.load()
            await database.aclose()
            return {record.id for record in records}

        with tempfile.TemporaryDirectory() as copies:
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(f"{self.state}/tasks.db{suffix}", copies)
            return trio.run(read, f"{copies}/tasks.db")

    def namespaces_held(self) -> list[str]:
        """Network namespaces that the agent keeps open, its own left out: one that is leaked shows here."""
        agent = self._cluster.daemons()[self._name].pid
        own = os.readlink(f"/proc/{agent}/ns/net")
        names = [os.readlink(path) for path in Path(f"/proc/{agent}/fd").iterdir()]
        return sorted(name for name in names if name.startswith("net:") and name != own)


__all__ = ["NodeSurvey"]
