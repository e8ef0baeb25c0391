"""Cgroup layouts are read right, and a task's cgroup is made right on each, here on directories that play the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beeyard.agent.executors.process.cgroups import (
    Hierarchy,
    Limits,
    TaskCgroup,
    at,
    children,
    detect,
    one_per_controller,
    remove_parent,
)

V1 = """\
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
"""


def a_v2_tree(directory: Path, controllers: str = "cpuset cpu io memory pids") -> str:
    """A directory with the files of a v2 root."""
    (directory / "cgroup.controllers").write_text(f"{controllers}\n")
    (directory / "cgroup.subtree_control").write_text("memory\n")
    return str(directory)


def make(cgroup: TaskCgroup, limits: Limits) -> None:
    """What a shim does with the steps, as it would on plain files."""
    for name, path, *fields in cgroup.make(limits):
        if name == "mkdirs":
            os.makedirs(path, exist_ok=True)
        elif name == "enable":
            Path(path, "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in fields))
        else:
            text, if_there, said = fields
            assert (name, said) == ("write", f"cannot write {text!r} to {path}")
            if not int(if_there) or os.path.exists(path):
                Path(path).write_text(text)


def contents(cgroup: TaskCgroup) -> dict[str, str]:
    """File contents of its directories."""
    return {entry.name: entry.read_text() for path in cgroup.paths for entry in Path(path).iterdir()}


def test_v1_hierarchies_are_found_by_their_options() -> None:
    """Controllers mounted together count as one place; hierarchies without ours do not count."""
    expected = (
        Hierarchy(1, ("cpu",), "/sys/fs/cgroup/cpu,cpuacct"),
        Hierarchy(1, ("memory",), "/sys/fs/cgroup/memory"),
        Hierarchy(1, ("pids",), "/sys/fs/cgroup/pids"),
    )
    assert expected == detect(V1)


def test_v2_and_hybrid_are_told_apart_by_what_v2_controls(tmp_path: Path) -> None:
    """A v2 tree counts for the controllers that it names: all of them, the rest beside v1, or none."""
    for controllers, expected in (
        ("cpuset cpu io memory pids", ("cpu", "memory", "pids")),
        ("", ()),
    ):
        root = a_v2_tree(tmp_path, controllers)
        line = f"41 31 0:38 / {root} rw,relatime - cgroup2 cgroup2 rw\n"
        found = detect(line)
        assert expected == tuple(c for h in found for c in h.controllers)
        both = detect(V1 + line)
        assert [h.version for h in both] == [1, 1, 1]
    root = a_v2_tree(tmp_path, "cpu memory pids")
    only_cpu_v1 = V1.splitlines()[2] + f"\n41 31 0:38 / {root} rw - cgroup2 cgroup2 rw\n"
    assert [(h.version, h.controllers) for h in detect(only_cpu_v1)] == [(1, ("cpu",)), (2, ("memory", "pids"))]


def test_mount_point_with_blank_and_hidden_mount() -> None:
    """Escapes of mountinfo are undone, and a mount on top hides what was below."""
    line = "41 31 0:38 / /a\\040b rw - cgroup cgroup rw,memory\n"
    assert (Hierarchy(1, ("memory",), "/a b"),) == detect(line)
    assert detect(line + "42 31 0:39 / /a\\040b rw - tmpfs tmpfs rw\n") == ()


def test_v2_limits_are_written(tmp_path: Path) -> None:
    """Every level above lets its children have the controllers; the limits are in v2's files and units."""
    root = a_v2_tree(tmp_path)
    cgroup = TaskCgroup(at(root), "beeyard/n1", "t1")
    os.makedirs(f"{root}/beeyard/n1/t1")
    Path(f"{root}/beeyard/n1/t1/memory.swap.max").write_text("max")
    make(cgroup, Limits(cpu_nano=1_500_000_000, memory_bytes=64 << 20, pids=7))
    for level in ("", "beeyard", "beeyard/n1"):
        assert Path(root, level, "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    written = {"cpu.max": "150000 100000", "memory.max": "67108864", "memory.swap.max": "0", "pids.max": "7"}
    assert written == contents(cgroup)


def test_v1_limits_are_written(tmp_path: Path) -> None:
    """Each controller's own tree gets its directory and its files."""
    hierarchies = tuple(Hierarchy(1, (name,), f"{tmp_path}/{name}") for name in ("cpu", "memory", "pids"))
    cgroup = TaskCgroup(hierarchies, "beeyard/n1", "t1")
    make(cgroup, Limits(cpu_nano=1_000, memory_bytes=4096, pids=1))
    assert [f"{tmp_path}/{name}/beeyard/n1/t1" for name in ("cpu", "memory", "pids")] == cgroup.paths
    written = {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "1000",  # never below what the kernel takes
        "memory.limit_in_bytes": "4096",
        "pids.max": "1",
    }
    assert written == contents(cgroup)


def test_limits_beyond_the_kernels_are_none(tmp_path: Path) -> None:
    """A limit that no task can reach must not keep it from starting."""
    huge = Limits(cpu_nano=2**64 - 1, memory_bytes=2**64 - 1, pids=2**63 - 1)
    v2 = TaskCgroup(at(a_v2_tree(tmp_path)), "b", "t1")
    make(v2, huge)
    assert contents(v2) == {"cpu.max": "max 100000", "memory.max": str(2**63 - 1), "pids.max": "max"}
    v1 = TaskCgroup(tuple(Hierarchy(1, (name,), f"{tmp_path}/{name}") for name in ("cpu", "memory", "pids")), "b", "t1")
    make(v1, huge)
    assert contents(v1) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "-1",
        "memory.limit_in_bytes": str(2**63 - 1),
        "pids.max": "max",
    }


def test_no_limit_writes_nothing(tmp_path: Path) -> None:
    """0 is no limit: the cgroup is there to find and to kill, and bounds nothing."""
    cgroup = TaskCgroup(at(a_v2_tree(tmp_path)), "b", "t1")
    make(cgroup, Limits())
    make(cgroup, Limits())
    assert contents(cgroup) == {}


def test_limit_without_its_controller_is_refused(tmp_path: Path) -> None:
    """A limit that this host cannot enforce is an error that names the controller, and nothing is made."""
    cgroup = TaskCgroup(at(a_v2_tree(tmp_path, "cpu memory")), "b", "t1")
    with pytest.raises(OSError, match="a pids limit needs the cgroup controller pids"):
        make(cgroup, Limits(pids=3))
    assert not os.path.exists(cgroup.paths[0])


def test_v2_kill_pids_and_oom_count(tmp_path: Path) -> None:
    """v2 kills by one write; processes and kills by the kernel are read from its files."""
    cgroup = TaskCgroup(at(a_v2_tree(tmp_path)), "b", "t1")
    make(cgroup, Limits())
    path = Path(cgroup.paths[0])
    (path / "cgroup.procs").write_text("12\n7\n")
    (path / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 3\noom_kill 2\noom_group_kill 0\n")
    cgroup.kill()
    assert (path / "cgroup.kill").read_text() == "1"
    assert cgroup.pids() == [7, 12]
    assert cgroup.oom_file() == f"{path}/memory.events"


def test_joining_is_said_for_each_hierarchy(tmp_path: Path) -> None:
    """v2 takes whole processes; on v1 the file for threads needs no lock over all forks of the machine."""
    v2 = TaskCgroup(at(a_v2_tree(tmp_path)), "b", "t1")
    assert list(v2.join()) == [("write", f"{tmp_path}/b/t1/cgroup.procs", "0", "0", f"{tmp_path}/b/t1/cgroup.procs")]
    v1 = TaskCgroup((Hierarchy(1, ("cpu",), "/c"), Hierarchy(1, ("memory", "pids"), "/m")), "b", "t1")
    assert [path for _, path, *_ in v1.join()] == ["/c/b/t1/tasks", "/m/b/t1/tasks"]


def test_gone_cgroup_is_empty_and_removed(tmp_path: Path) -> None:
    """What is not there has no processes, and may be removed again."""
    cgroup = TaskCgroup(at(a_v2_tree(tmp_path)), "b", "t1")
    assert cgroup.pids() == []
    cgroup.remove()


def test_children_leave_the_shims_out(tmp_path: Path) -> None:
    """Recovery finds tasks by their cgroups, each once, and not the place where shims live."""
    hierarchies = one_per_controller([Hierarchy(1, (name,), f"{tmp_path}/{name}") for name in ("cpu", "memory")])
    for path in ("cpu/b/t2", "cpu/b/t1", "memory/b/t2", "cpu/b/_shims"):
        os.makedirs(tmp_path / path)
    assert children(hierarchies, "b") == ["t1", "t2"]
    assert children(hierarchies, "other") == []
    for path in ("cpu/b/t2", "cpu/b/t1"):
        os.rmdir(tmp_path / path)
    remove_parent(hierarchies, "b")
    assert not os.path.exists(tmp_path / "cpu/b")
    assert os.path.exists(tmp_path / "memory/b/t2")
