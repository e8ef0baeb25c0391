"""What has its default is left out of what is stored of tasks: so no default may ever change, and all of them are here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.model import Limits, Resources, RestartPolicy, Task, TaskSpec, TaskStatus
from tests.support.builders import a_task

EMPTY: Any = ()
NO_RESOURCES = {"cpu_nano": 0, "memory_bytes": 0, "generic": EMPTY}
NO_LIMITS = {"cpu_nano": 0, "memory_bytes": 0, "pids": 0}
RESTART = {"condition": "any", "delay_s": 5.0, "max_attempts": 0, "window_s": 0.0}
NO_STATUS = {"state": 0, "message": "", "err": "", "at_s": 0.0, "exit_code": None, "pid": 0, "conflicts": EMPTY}
NAMES_OF_NOTHING = ("command", "args", "env", "constraints", "platforms", "preferences", "network_ids", "host_ports")
SPEC = {
    **dict.fromkeys((*NAMES_OF_NOTHING, "ports", "mounts"), EMPTY),
    **dict.fromkeys(("image", "user", "dir", "hostname"), ""),
    "container_labels": {},
    "stop_signal": "SIGTERM",
    "stop_grace_s": 10.0,
    "reservations": NO_RESOURCES,
    "limits": NO_LIMITS,
    "restart": RESTART,
    "max_replicas_per_node": 0,
    "log_driver": {"name": "", "options": {}},
    "force_update": 0,
}
TASK = {
    **dict.fromkeys(("strategy", "bound_node_id", "node_id"), ""),
    **dict.fromkeys(("pins", "grants"), EMPTY),
    "version": 0,
    "created_at_s": 0.0,
    "updated_at_s": 0.0,
    "spec_version": 1,
    "fence": False,
    "mac_per_slot": False,
    "desired_state": 512,
    "status": NO_STATUS,
}


def as_written(value: Any) -> Any:
    """A value with every field of it, as it would be without leaving any out."""
    if isinstance(value, msgspec.Struct):
        return {name: as_written(getattr(value, name)) for name in value.__struct_fields__}
    return value


@pytest.mark.parametrize(
    ("empty", "defaults"),
    [
        (TaskSpec(), SPEC),
        (TaskStatus(), NO_STATUS),
        (Resources(), NO_RESOURCES),
        (Limits(), NO_LIMITS),
        (RestartPolicy(), RESTART),
    ],
    ids=lambda value: type(value).__name__,
)
def test_defaults_are_what_they_always_were(empty: msgspec.Struct, defaults: dict[str, Any]) -> None:
    """A new field may join this table; what is in it stays."""
    assert as_written(empty) == defaults


def test_a_tasks_defaults_are_what_they_always_were() -> None:
    """Beside the fields that every task is made with."""
    task = Task(id="t", service_id="s", service_name="web", slot=1, spec=TaskSpec())
    assert {name: value for name, value in as_written(task).items() if name in TASK} == TASK
    assert {*task.__struct_fields__} == {*TASK, "id", "service_id", "service_name", "slot", "spec"}


def test_a_task_is_stored_without_its_defaults() -> None:
    """And is read as it was; one that was written with all of them, by an older version, too."""
    task = a_task("t")
    data = msgspec.msgpack.encode(task)
    assert b"stop_signal" not in data
    assert msgspec.msgpack.decode(data, type=Task) == task
    in_full = msgspec.msgpack.encode({"type": "task", **as_written(task)})
    assert b"stop_signal" in in_full
    assert msgspec.msgpack.decode(in_full, type=Task) == task
