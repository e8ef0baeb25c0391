"""Who a task runs as, and what it finds in its environment."""

from __future__ import annotations

import pathlib
import re

import pytest

from beeyard.agent.executors.process.executor import _environment
from beeyard.agent.executors.process.launch import ROOT_CAPABILITIES, LaunchError, User, find_user
from beeyard.core.model import TaskSpec
from beeyard.runtime.host import NO_ADDITIONS


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", User(65534, 65534)),
        ("0", User(0, 0)),
        ("0:7", User(0, 7)),
        ("12345", User(12345, 65534)),  # a number without an entry is nobody's friend
        ("12345:23456", User(12345, 23456)),
        ("65534", User(65534, 65534)),
        ("root:daemon", User(0, 1)),
        ("007:08", User(7, 8)),
        ("4294967294:4294967294", User(2**32 - 2, 2**32 - 2)),
    ],
)
def test_user_is_read_as_docker_does(spec: str, expected: User) -> None:
    """Names and numbers, with and without a group; root only when it is asked for."""
    assert expected == find_user(spec)


def test_named_user_has_its_groups() -> None:
    """A user by name brings the groups that this host gives it."""
    assert User(0, 0, (0,)) == find_user("root")


@pytest.mark.parametrize(("spec", "said"), [("nosuch", "user nosuch"), ("root:nosuch", "group nosuch")])
def test_unknown_name_is_said(spec: str, said: str) -> None:
    """An unknown name never becomes somebody else."""
    with pytest.raises(LaunchError, match=f"{said} does not exist"):
        find_user(spec)


@pytest.mark.parametrize("number", ["4294967295", "4294967296", "18446744073709551616", "9" * 5000])
@pytest.mark.parametrize(("spec", "kind"), [("{}", "user"), ("1000:{}", "group"), ("{}:1000", "user")])
def test_a_number_that_is_nobodys_is_refused(number: str, spec: str, kind: str) -> None:
    """2³²−1 says "leave as it is" to the kernel: as a user it would be root. Above it there is nothing."""
    with pytest.raises(LaunchError, match=f"{kind} {number[:20]} is not possible"):
        find_user(spec.format(number))


@pytest.mark.parametrize("spec", ["²", "٣", "-1", "+1", "1_0", " 1", "0x1"])
def test_what_only_looks_like_a_number_is_a_name(spec: str) -> None:
    """Other alphabets' digits and Python's spellings of numbers are no ids."""
    with pytest.raises(LaunchError, match="does not exist"):
        find_user(spec)


def test_root_never_gets_what_breaks_the_network() -> None:
    """NET_ADMIN could bring a link back, NET_RAW answer for a stranger's address, SYS_ADMIN undo every mount."""
    net_admin, net_raw, sys_admin = 12, 13, 21
    assert not {net_admin, net_raw, sys_admin} & ROOT_CAPABILITIES


# Source: <linux/capability.h>
NAMES = {
    0: "CHOWN",
    1: "DAC_OVERRIDE",
    3: "FOWNER",
    4: "FSETID",
    5: "KILL",
    6: "SETGID",
    7: "SETUID",
    8: "SETPCAP",
    10: "NET_BIND_SERVICE",
    18: "SYS_CHROOT",
    29: "AUDIT_WRITE",
    31: "SETFCAP",
}


def test_operators_are_told_what_root_keeps() -> None:
    """The manual names every capability, and no other."""
    manual = " ".join(pathlib.Path("docs/operating.md").read_text().split())
    listed = manual.partition("keeps twelve capabilities:")[2].partition("which is Docker's")[0]
    assert set(NAMES) == ROOT_CAPABILITIES
    assert set(NAMES.values()) == set(re.findall("`(.*?)`", listed))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ((), ({}, ())),
        (("A=1", "A=2=3", "B="), ({"A": "2=3", "B": ""}, ())),
        (("PATH", "A=1", "A"), ({}, ("PATH", "A"))),
        (("PATH", "PATH=/bin"), ({"PATH": "/bin"}, ())),
    ],
)
def test_environment_follows_dockers_rules(env: tuple[str, ...], expected: object) -> None:
    """The later of two entries counts; a bare name takes the default away."""
    assert expected == _environment(TaskSpec(env=env), NO_ADDITIONS)
