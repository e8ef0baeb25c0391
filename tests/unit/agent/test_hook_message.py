"""What node hooks are told and may answer."""

from __future__ import annotations

import json

import pytest

from beeyard.agent.hook_message import HookMount, HookReply, document, message_of, reply_of
from beeyard.core.errors import NodeHookError
from beeyard.core.grant import AddressGrant, MappedPort, PortGrant, ResourceGrant
from beeyard.core.model import HOST_NETWORK_ID, Limits, Resources, TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from tests.support.builders import some_generic

ADDRESS = AddressGrant(
    id="g1",
    hook="address",
    network_id="n1",
    network_name="lan",
    pool_id="p",
    pool_name="p",
    segment="s",
    driver="macvlan",
    parent="eth0.10",
    addresses=("10.1.0.7/24",),
    gateways=("10.1.0.1",),
    mtu=1400,
)


def a_task(**spec: object) -> AssignedTask:
    fields = {
        "image": "host",
        "command": ("sleep",),
        "args": ("9",),
        "env": ("A=1", "B"),
        "reservations": Resources(cpu_nano=5, memory_bytes=6),
        "limits": Limits(cpu_nano=7, memory_bytes=8, pids=9),
        "container_labels": {"c": "d"},
        **spec,
    }
    return AssignedTask(
        id="t1",
        service_id="s1",
        service_name="web",
        slot=3,
        spec=TaskSpec(**fields),  # type: ignore[arg-type]
        desired_state=TaskState.RUNNING,
        grants=(
            ADDRESS,
            PortGrant(id="g2", hook="port", ports=(MappedPort(published=80, target=8080),)),
            ResourceGrant(id="g3", hook="claim", resources=some_generic({"gpu": ["a", "b"], "ssd": 3})),
        ),
        service_labels={"l": "m"},
    )


def test_the_document_of_version_1() -> None:
    """Every field that the reference names, so that none goes unnoticed."""
    told = json.loads(document("prepare", a_task(), node_id="node1", node_name="n1"))
    assert told == {
        "version": 1,
        "moment": "prepare",
        "node": {"id": "node1", "name": "n1"},
        "task": {
            "id": "t1",
            "service_id": "s1",
            "service": "web",
            "slot": 3,
            "image": "host",
            "command": ["sleep"],
            "args": ["9"],
            "env": ["A=1", "B"],
            "user": "",
            "dir": "",
            "hostname": "",
            "labels": {"c": "d"},
            "service_labels": {"l": "m"},
            "host_network": False,
            "resources": [
                {"kind": "gpu", "value": 2, "names": ["a", "b"]},
                {"kind": "ssd", "value": 3, "names": []},
            ],
            "networks": [
                {
                    "id": "n1",
                    "name": "lan",
                    "interface": "eth0",
                    "driver": "macvlan",
                    "mode": "bridge",
                    "parent": "eth0.10",
                    "addresses": ["10.1.0.7/24"],
                    "gateways": ["10.1.0.1"],
                    "mac": None,
                    "mtu": 1400,
                    "internal": False,
                }
            ],
            "ports": [{"protocol": "tcp", "published": 80, "target": 8080}],
            "reservations": {"cpu_nano": 5, "memory_bytes": 6},
            "limits": {"cpu_nano": 7, "memory_bytes": 8, "pids": 9},
        },
    }


def test_what_the_moments_add() -> None:
    """The namespace at start, the exit code at stop."""
    start = json.loads(document("start", a_task(), node_id="", node_name="n1", netns="/proc/1/ns/net"))
    assert start["netns"] == "/proc/1/ns/net"
    host = a_task(network_ids=(HOST_NETWORK_ID,))
    start = json.loads(document("start", host, node_id="", node_name="n1"))
    assert (start["netns"], start["task"]["host_network"]) == (None, True)
    assert json.loads(document("stop", a_task(), node_id="", node_name="n1"))["exit_code"] is None
    assert json.loads(document("stop", a_task(), node_id="", node_name="n1", exit_code=0))["exit_code"] == 0


def test_an_answer_with_everything() -> None:
    """A number is as good a value of a sysctl as its text."""
    answer = {
        "env": {"A": "1"},
        "sysctls": {"net.core.somaxconn": 1024, "kernel.sem": "1 2 3 4"},
        "mounts": [{"source": "/a", "target": "/b"}, {"source": "/c", "target": "/d", "read_only": False}],
        "devices": ["/dev/kvm"],
    }
    reply = reply_of("h", json.dumps(answer).encode())
    assert reply == HookReply(
        env={"A": "1"},
        sysctls={"net.core.somaxconn": 1024, "kernel.sem": "1 2 3 4"},
        mounts=(HookMount(source="/a", target="/b"), HookMount(source="/c", target="/d", read_only=False)),
        devices=("/dev/kvm",),
    )
    assert reply


@pytest.mark.parametrize("answer", [b"", b" \n", b"{}", b'{"env": {}}'])
def test_answers_that_add_nothing(answer: bytes) -> None:
    """A hook that only looks need not answer."""
    assert not reply_of("h", answer)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"ok", "node hook h answers what is no JSON: "),
        (b"\xff", "node hook h answers what is no JSON: "),
        (b'{"env": {}} {}', "node hook h answers what is no JSON: "),
        (b"[" * 100_000, "node hook h answers what is no JSON: "),
        (b"[]", "node hook h answers no JSON object: {} is the least"),
        (
            b'{"capabilities": ["ALL"]}',
            "node hook h answers 'capabilities', which is unknown: env, sysctls, mounts, devices are right",
        ),
        (b'{"env": {"A": 1}}', "node hook h answers wrongly: expected `str`, got `int` - at `$.env[...]`"),
        (
            b'{"mounts": [{"source": "/a", "target": "/b", "propagation": "shared"}]}',
            "node hook h answers wrongly: object contains unknown field `propagation` - at `$.mounts[0]`",
        ),
    ],
)
def test_answers_that_are_none(answer: bytes, sentence: str) -> None:
    """Each is refused with the place that is wrong."""
    with pytest.raises(NodeHookError) as caught:
        reply_of("h", answer)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("", ""),
        ("one\ntwo\n\n  \n", "two"),
        ("\x1b[31mred\x07", "[31mred"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_the_message_is_the_last_line(stderr: str, message: str) -> None:
    """Fit for a table, whatever a program prints."""
    assert message_of(stderr) == message
