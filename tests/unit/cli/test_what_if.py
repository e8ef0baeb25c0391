"""What `beeyard whatif` asks the manager for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beeyard.cli import explain, what_if
from beeyard.cli.manager_api import ApiError


def asked(*arguments: str) -> Any:
    return what_if.question(what_if._parser().parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("node-lost", "yard1"), {"Lost": {"Node": "yard1"}}),
        (("lost", "node.labels.rack==r1"), {"Lost": {"Constraint": "node.labels.rack==r1"}}),
        (("drain", "yard1"), {"Drain": {"Node": "yard1"}}),
        (("drain", "--where", "node.labels.rack==r1"), {"Drain": {"Constraint": "node.labels.rack==r1"}}),
        (("service", "web"), {"Scale": {"Service": "web"}}),
        (("service", "web", "--replicas", "0"), {"Scale": {"Service": "web", "Replicas": 0}}),
    ],
)
def test_a_question_becomes_a_request(arguments: tuple[str, ...], body: Any) -> None:
    assert asked(*arguments) == body


def test_a_new_service_by_its_options() -> None:
    options = (
        "--image",
        "host",
        "--replicas",
        "3",
        "--reserve-cpu",
        "0.5",
        "--reserve-memory",
        "256",
        "--network",
        "lan",
    )
    spec = asked("service", *options, "--constraint", "node.role==worker", "--replicas-max-per-node", "1")["Service"]
    template = spec["TaskTemplate"]
    assert spec["Mode"] == {"Replicated": {"Replicas": 3}}
    assert template["ContainerSpec"] == {"Image": "host"}
    assert template["Resources"]["Reservations"] == {"NanoCPUs": 500_000_000, "MemoryBytes": 256 << 20}
    assert template["Placement"] == {"Constraints": ["node.role==worker"], "MaxReplicas": 1}
    assert template["Networks"] == [{"Target": "lan"}]


@pytest.mark.parametrize("cores", ["inf", "nan", "1e300", "-1", "two"])
def test_a_reservation_that_no_machine_has_is_refused_by_its_name(cores: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        asked("service", "--image", "host", "--reserve-cpu", cores)
    said = capsys.readouterr().err
    assert "--reserve-cpu" in said
    assert cores in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[", "is no JSON: Expecting value"),
        (b"[]", "is no JSON object"),
        (b"\xff\xfe", "is no JSON: 'utf-8' codec"),
        (b"[" * 100_000, "is no JSON: maximum recursion"),
        (None, "no such file or directory"),
    ],
)
def test_a_file_that_is_no_service_is_named(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ApiError) as refused:
        asked("service", "--spec", str(path))
    assert f"--spec {path}" in str(refused.value)
    assert reason in str(refused.value)


def test_a_new_service_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"Name": "web"}))
    assert asked("service", "--spec", str(path)) == {"Service": {"Name": "web"}}
    assert asked("service", "--spec", str(path), "--replicas", "2")["Service"]["Mode"] == {
        "Replicated": {"Replicas": 2}
    }
    path.write_text("[]")
    with pytest.raises(ApiError, match="is no JSON object"):
        asked("service", "--spec", str(path))


@pytest.mark.parametrize("arguments", [(), ("web", "--image", "host"), ("--image", "host", "--spec", "-")])
def test_what_service_is_meant_must_be_clear(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ApiError, match="give the NAME of a service that exists"):
        asked("service", *arguments)


@pytest.mark.parametrize("arguments", [(), ("yard1", "--where", "node.labels.rack==r1")])
def test_what_is_drained_must_be_clear(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ApiError, match="give a node, or --where EXPRESSION"):
        asked("drain", *arguments)


def test_a_manager_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "docker.sock")
    assert explain.main(["web", "--socket", path]) == 1
    assert capsys.readouterr().err.startswith(f"beeyard explain: cannot ask the manager at {path}")
    assert what_if.main(["node-lost", "yard1", "--socket", path]) == 1
    assert capsys.readouterr().err.startswith(f"beeyard whatif node-lost: cannot ask the manager at {path}")
    assert what_if.main(["service", "--spec", str(tmp_path / "none"), "--socket", path]) == 1
    assert "no such file" in capsys.readouterr().err
