"""Who a task runs as, and what it finds in its environment."""

from __future__ import annotations

import pytest

from beeyard.agent.executors.process.executor import _environment
from beeyard.agent.executors.process.launch import ROOT_CAPABILITIES, LaunchError, User, find_user
from beeyard.core.model import TaskSpec


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


def test_root_never_gets_what_breaks_the_network() -> None:
    """NET_ADMIN could bring a link back, NET_RAW answer for a stranger's address, SYS_ADMIN undo every mount."""
    net_admin, net_raw, sys_admin = 12, 13, 21
    assert not {net_admin, net_raw, sys_admin} & ROOT_CAPABILITIES


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
    assert expected == _environment(TaskSpec(env=env))
