"""What node hooks may add: the operator's list, and what no list allows."""

from __future__ import annotations

import pytest

from beeyard.agent.hook_policy import (
    HookPolicy,
    device_fault,
    env_fault,
    source_fault,
    sysctl_fault,
    target_fault,
)

NOTHING = HookPolicy()
MUCH = HookPolicy(
    allow_env=("GPU_*", "TOKEN"),
    allow_sysctls=("net.ipv4.tcp_*", "kernel.*", "vm.*", "fs.*"),
    allow_mounts=("/srv/shared", "/etc/gpu.conf"),
    allow_writable_mounts=("/srv/scratch",),
    allow_devices=("/dev/nvidia*", "/dev/kvm"),
)
EVERYTHING = HookPolicy(
    allow_env=("*",), allow_sysctls=("*",), allow_mounts=("/",), allow_writable_mounts=("/",), allow_devices=("*",)
)
OWN = ("/etc/beeyard", "/var/lib/beeyard")


def test_nothing_is_allowed_by_default_and_the_sentence_says_so() -> None:
    """An empty list refuses each kind by name."""
    assert env_fault(NOTHING, "A", "1") == "may not add env A: the agent's configuration allows no env"
    assert sysctl_fault(NOTHING, "net.ipv4.ip_forward", "1", own_network=True) == (
        "may not add sysctl net.ipv4.ip_forward: the agent's configuration allows no sysctls"
    )
    assert source_fault(NOTHING, "/etc/shadow", "/etc/shadow", read_only=True, own_dirs=OWN) == (
        "may not add mount /etc/shadow: the agent's configuration allows no mounts"
    )
    assert device_fault(NOTHING, "/dev/kvm", "/dev/kvm") == (
        "may not add device /dev/kvm: the agent's configuration allows no devices"
    )


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("GPU_0", "a b=c", ""),
        ("TOKEN", "", ""),
        ("TOKENS", "x", "may not add env TOKENS: the agent's configuration allows env GPU_*, TOKEN"),
        ("LD_PRELOAD", "x", "may not add env LD_PRELOAD: the agent's configuration allows env GPU_*, TOKEN"),
        ("GPU_=", "x", "may not add env 'GPU_=': letters, digits and '_' make a name, and a value has no NUL"),
        ("GPU_1", "\0", "may not add env 'GPU_1': letters, digits and '_' make a name, and a value has no NUL"),
    ],
)
def test_env(name: str, value: str, fault: str) -> None:
    """Patterns count for the whole name."""
    assert env_fault(MUCH, name, value) == fault


@pytest.mark.parametrize("name", ["kernel.shmmax", "kernel.sem", "net.ipv4.tcp_mem"])
def test_sysctls_of_the_task_are_allowed_by_name(name: str) -> None:
    """Network, IPC and UTS."""
    assert sysctl_fault(MUCH, name, "1", own_network=True) == ""


@pytest.mark.parametrize("name", ["kernel.panic", "vm.overcommit_memory", "fs.file-max", "kernel.core_pattern"])
def test_sysctls_of_the_node_are_refused_whatever_is_allowed(name: str) -> None:
    """They would change every task of the node."""
    assert "belongs to the whole node" in sysctl_fault(EVERYTHING, name, "1", own_network=True)


@pytest.mark.parametrize(
    "name", ["net", "net/ipv4/ip_forward", "net..x", "net.ipv4.../x", "../kernel.sem", "net.ipv4.a\n"]
)
def test_sysctl_names_that_are_paths_are_refused(name: str) -> None:
    """A name becomes a path below /proc/sys, and leads nowhere else."""
    assert "names joined by dots" in sysctl_fault(EVERYTHING, name, "1", own_network=True)


def test_a_network_sysctl_of_a_task_on_its_hosts_network_is_refused() -> None:
    """There it would be the node's; IPC is the task's own all the same."""
    fault = sysctl_fault(EVERYTHING, "net.ipv4.ip_forward", "1", own_network=False)
    assert fault == "may not add sysctl net.ipv4.ip_forward: the task uses its host's network"
    assert sysctl_fault(EVERYTHING, "kernel.sem", "1 2 3 4", own_network=False) == ""


@pytest.mark.parametrize(
    ("asked", "real", "read_only", "fault"),
    [
        ("/srv/shared", "/srv/shared", True, ""),
        ("/srv/shared/a/b", "/srv/shared/a/b", True, ""),
        ("/srv/scratch/x", "/srv/scratch/x", False, ""),
        ("/srv/scratch/x", "/srv/scratch/x", True, ""),
        ("/etc/gpu.conf", "/etc/gpu.conf", True, ""),
        (
            "/etc/shadow",
            "/etc/shadow",
            True,
            "may not add mount /etc/shadow: the agent's configuration allows mounts of "
            "/srv/shared, /etc/gpu.conf, /srv/scratch",
        ),
        (
            "/srv/shared/link",
            "/etc/shadow",
            True,
            "may not add mount /srv/shared/link (which is /etc/shadow): the agent's configuration allows mounts of "
            "/srv/shared, /etc/gpu.conf, /srv/scratch",
        ),
        (
            "/srv/shared",
            "/srv/shared",
            False,
            "may not add writable mount /srv/shared: the agent's configuration allows writable mounts of /srv/scratch",
        ),
    ],
)
def test_mount_sources(asked: str, real: str, read_only: bool, fault: str) -> None:
    """What a path really is counts, a neighbour with the same beginning does not."""
    assert source_fault(MUCH, asked, real, read_only=read_only, own_dirs=OWN) == fault
    assert source_fault(MUCH, "/srv/shared2", "/srv/shared2", read_only=True, own_dirs=OWN) != ""


@pytest.mark.parametrize(
    "path", ["/etc/beeyard", "/etc/beeyard/agent.toml", "/etc", "/", "/var/lib/beeyard/agent/identity"]
)
def test_what_is_beeyards_own_is_never_mounted(path: str) -> None:
    """Neither it, nor what is in it, nor what it is in."""
    assert "Beeyard keeps its own things" in source_fault(EVERYTHING, path, path, read_only=True, own_dirs=OWN)


@pytest.mark.parametrize("target", ["/proc", "/proc/sys", "/sys/fs", "/dev/kvm", "/var/lib/beeyard/x", "/var", "/etc"])
def test_targets_that_are_never_covered(target: str) -> None:
    """The kernel's file systems and Beeyard's own directories, also from above."""
    assert target_fault(target, own_dirs=OWN).endswith("is never covered")


@pytest.mark.parametrize("target", ["/", "data", "/a/../proc", "/a//b", "/a/", "//proc", "/a\0b", ""])
def test_targets_that_are_no_clean_paths(target: str) -> None:
    """One path has one spelling."""
    assert "an absolute path below / and without '..' is right" in target_fault(target, own_dirs=OWN)


def test_targets_elsewhere_are_fine() -> None:
    """Whether something is there to be covered, the executor sees."""
    for target in ("/data", "/tmp/x", "/etc/gpu.conf", "/process", "/devices"):
        assert target_fault(target, own_dirs=OWN) == ""


def test_devices() -> None:
    """Both names of a link have to be allowed."""
    assert device_fault(MUCH, "/dev/kvm", "/dev/kvm") == ""
    assert device_fault(MUCH, "/dev/nvidia0", "/dev/nvidia0") == ""
    fault = device_fault(MUCH, "/dev/nvidia-disk", "/dev/sda")
    assert fault == (
        "may not add device /dev/nvidia-disk (which is /dev/sda): the agent's configuration allows devices "
        "/dev/nvidia*, /dev/kvm"
    )
    assert device_fault(EVERYTHING, "/srv/sda", "/srv/sda") == "may not add device /srv/sda: it must be below /dev"


def test_what_cannot_be_meant_is_found_at_the_start() -> None:
    """A policy with faults names each."""
    policy = HookPolicy(timeout_s=0, allow_mounts=("srv",), allow_devices=("/dev/../x",), directory="hooks")
    assert policy.faults() == [
        "timeout_s is 0: it must be above 0 and at most 3600 seconds",
        "allow_mounts has 'srv': an absolute path without '..' is right",
        "allow_devices has '/dev/../x': an absolute path without '..' is right",
        "directory has 'hooks': an absolute path without '..' is right",
    ]
    assert MUCH.faults() == NOTHING.faults() == []
