"""Docker's service JSON to the model and back."""

from typing import Any

import msgspec
import pytest

from beeyard.core.errors import InvalidSpec, RequestError, Unsupported
from beeyard.core.model import (
    FailureAction,
    HostPort,
    Limits,
    Platform,
    PublishedPort,
    Resources,
    RestartCondition,
    RestartPolicy,
    UpdateConfig,
    UpdateOrder,
)
from beeyard.core.mounts import LogDriver
from beeyard.core.preference import Preference
from beeyard.manager.api.docker_service import read_service_spec, show_service_spec
from tests.support.builders import some_generic
from tests.support.docker_bodies import a_service_body as a_body

FULL: dict[str, Any] = {
    "Name": "web",
    "Labels": {"tier": "front"},
    "TaskTemplate": {
        "ContainerSpec": {
            "Image": "host:latest@sha256:4740ae6347b0172c01254ff55bae5aff5199f4446e7f6d643d40185b3f475145",
            "Labels": {"c": "1"},
            "Command": ["sh", "-c"],
            "Args": ["sleep 1"],
            "Hostname": "h1",
            "Env": ["A=1", "B=x=y", "C="],
            "Dir": "/tmp",
            "User": "nobody:nogroup",
            "StopSignal": "int",
            "StopGracePeriod": 3_500_000_000,
            "Healthcheck": {"Test": ["NONE"]},
            "Privileges": {"CredentialSpec": None, "SELinuxContext": None, "NoNewPrivileges": False},
            "Isolation": "default",
        },
        "Resources": {
            "Limits": {"NanoCPUs": 500_000_000, "MemoryBytes": 64 << 20, "Pids": 10},
            "Reservations": {
                "NanoCPUs": 250_000_000,
                "MemoryBytes": 32 << 20,
                "GenericResources": [
                    {"DiscreteResourceSpec": {"Kind": "gpu", "Value": 2}},
                    {"DiscreteResourceSpec": {"Kind": "SSD", "Value": 100}},
                ],
            },
        },
        "RestartPolicy": {
            "Condition": "on-failure",
            "Delay": 1_000_000_000,
            "MaxAttempts": 3,
            "Window": 120_000_000_000,
        },
        "Placement": {
            "Constraints": ["node.labels.rack==r1"],
            "Preferences": [
                {"Spread": {"SpreadDescriptor": "node.labels.zone"}},
                {"Spread": {"SpreadDescriptor": "Engine.Labels.rack:r1=2,unlabelled=last"}},
            ],
            "MaxReplicas": 2,
            "Platforms": [{"Architecture": "amd64", "OS": "linux"}],
        },
        "LogDriver": {"Name": "local", "Options": {}},
        "Networks": [{"Target": "lan"}],
        "ForceUpdate": 2,
        "Runtime": "container",
    },
    "Mode": {"Replicated": {"Replicas": 7}},
    "UpdateConfig": {
        "Parallelism": 2,
        "Delay": 1_000_000_000,
        "FailureAction": "continue",
        "Monitor": 2_000_000_000,
        "MaxFailureRatio": 0.25,
        "Order": "start-first",
    },
    "EndpointSpec": {
        "Mode": "vip",
        "Ports": [
            {"Protocol": "tcp", "TargetPort": 80, "PublishedPort": 8080, "PublishMode": "host"},
            {"Name": "dns", "Protocol": "udp", "TargetPort": 53, "PublishMode": "host"},
        ],
    },
}


def test_every_field_that_a_user_may_set_reaches_the_model() -> None:
    spec = read_service_spec(FULL)
    task = spec.task
    assert (spec.name, spec.labels, spec.replicas) == ("web", {"tier": "front"}, 7)
    assert (task.image, task.command, task.args) == ("host", ("sh", "-c"), ("sleep 1",))
    assert (task.env, task.user, task.dir, task.hostname) == (("A=1", "B=x=y", "C="), "nobody:nogroup", "/tmp", "h1")
    assert (task.container_labels, task.stop_signal, task.stop_grace_s) == ({"c": "1"}, "SIGINT", 3.5)
    assert task.limits == Limits(cpu_nano=500_000_000, memory_bytes=64 << 20, pids=10)
    assert task.reservations == Resources(
        cpu_nano=250_000_000, memory_bytes=32 << 20, generic=some_generic({"SSD": 100, "gpu": 2})
    )
    assert task.log_driver == LogDriver(name="local")
    assert task.preferences == (
        Preference(descriptor="node.labels.zone"),
        Preference(descriptor="engine.labels.rack", weights=(("r1", 2),), unlabelled_last=True),
    )
    assert task.restart == RestartPolicy(
        condition=RestartCondition.ON_FAILURE, delay_s=1.0, max_attempts=3, window_s=120.0
    )
    assert task.constraints == ("node.labels.rack==r1",)
    assert task.platforms == (Platform(architecture="amd64", os="linux"),)
    assert (task.max_replicas_per_node, task.network_ids, task.force_update) == (2, ("lan",), 2)
    assert spec.ports == (
        PublishedPort(target=80, published=8080),
        PublishedPort(protocol="udp", target=53, name="dns"),
    )
    assert task.host_ports == (HostPort(port=8080),)
    assert spec.update == UpdateConfig(
        parallelism=2,
        delay_s=1.0,
        failure_action=FailureAction.CONTINUE,
        monitor_s=2.0,
        max_failure_ratio=0.25,
        order=UpdateOrder.START_FIRST,
    )


@pytest.mark.parametrize("body", [FULL, a_body(), a_body(StopGracePeriod=0)])
@pytest.mark.parametrize("defaults", [False, True])
def test_what_is_shown_reads_back_as_the_same_task(body: dict[str, Any], defaults: bool) -> None:
    """The docker command changes a service by sending back, edited, what it was shown."""
    spec = read_service_spec(body)
    again = read_service_spec(show_service_spec(spec, defaults=defaults))
    assert again.task == spec.task
    assert msgspec.structs.replace(again, update=None) == msgspec.structs.replace(spec, update=None)
    if not defaults:
        assert again == spec


def test_one_replica_is_the_default_and_zero_is_zero() -> None:
    assert read_service_spec(a_body()).replicas == 1
    assert read_service_spec({**a_body(), "Mode": None}).replicas == 1
    assert read_service_spec({**a_body(), "Mode": {"Replicated": {"Replicas": 0}}}).replicas == 0


def test_what_small_clients_leave_out_is_filled_in() -> None:
    spec = read_service_spec({"Name": "b", "TaskTemplate": {"ContainerSpec": {"Image": "host", "Args": None}}})
    assert (spec.task.restart, spec.task.stop_grace_s, spec.update) == (RestartPolicy(), 10.0, None)
    sparse = {**a_body(), "UpdateConfig": {"Parallelism": 1}}
    assert read_service_spec(sparse).update == UpdateConfig()


def test_networks_in_the_old_place_count() -> None:
    """Clients before API 1.25."""
    assert read_service_spec({**a_body(), "Networks": [{"Target": "lan"}]}).task.network_ids == ("lan",)


REFUSED_BY_FLAG = [
    (a_body(Mounts=[{"Type": "bind", "Source": "/tmp", "Target": "/t"}]), "--mount"),
    (a_body(Secrets=[{"SecretID": "x", "SecretName": "s"}]), "--secret"),
    (a_body(Configs=[{"ConfigID": "x", "ConfigName": "s"}]), "--config"),
    (a_body(Healthcheck={"Test": ["CMD", "true"]}), "--health-cmd"),
    (a_body(Init=True), "--init"),
    (a_body(TTY=True), "--tty"),
    (a_body(ReadOnly=True), "--read-only"),
    (a_body(Groups=["wheel"]), "--group"),
    (a_body(Hosts=["1.2.3.4 foo"]), "--host"),
    (a_body(DNSConfig={"Nameservers": ["1.1.1.1"]}), "--dns"),
    (a_body(Sysctls={"net.core.somaxconn": "100"}), "--sysctl"),
    (a_body(CapabilityAdd=["CAP_NET_ADMIN"]), "--cap-add"),
    (a_body(CapabilityDrop=["ALL"]), "--cap-drop"),
    (a_body(Ulimits=[{"Name": "nofile", "Soft": 1, "Hard": 2}]), "--ulimit"),
    (a_body(OomScoreAdj=100), "--oom-score-adj"),
    (a_body(Isolation="process"), "--isolation"),
    (a_body(Privileges={"NoNewPrivileges": True}), "privileges"),
    (a_body(Env=["A={{.Task.Slot}}"]), "--env"),
    (a_body(Hostname="h-{{.Node.Hostname}}"), "--hostname"),
    ({**a_body(), "Mode": {"Global": {}}}, "--mode global"),
    ({**a_body(), "Mode": {"ReplicatedJob": {"MaxConcurrent": 2}}}, "--mode replicated-job"),
    ({**a_body(), "Mode": {"GlobalJob": {}}}, "--mode global-job"),
    ({**a_body(), "EndpointSpec": {"Mode": "dnsrr"}}, "--endpoint-mode dnsrr"),
    ({**a_body(), "EndpointSpec": {"Ports": [{"TargetPort": 80}]}}, "--publish mode=host,target=80"),
    ({**a_body(), "UpdateConfig": {"FailureAction": "rollback"}}, "--update-failure-action rollback"),
    ({**a_body(), "RollbackConfig": {"Parallelism": 5}}, "--rollback"),
]
IN_TEMPLATE = [
    ({"LogDriver": {"Options": {"max-size": "1m"}}}, "--log-opt"),
    ({"LogDriver": {"Name": "local", "Options": {"max-size": "1m"}}}, "--log-opt"),
    ({"PluginSpec": {"Name": "p"}}, "plugin"),
    ({"Runtime": "plugin"}, "runtime"),
    ({"Networks": [{"Target": "lan", "Aliases": ["db"]}]}, "alias="),
    ({"Networks": [{"Target": "lan", "DriverOpts": {"a": "b"}}]}, "driver-opt="),
]
REFUSED_BY_FLAG += [({**a_body(), "TaskTemplate": {**a_body()["TaskTemplate"], **t}}, flag) for t, flag in IN_TEMPLATE]


@pytest.mark.parametrize(("body", "flag"), REFUSED_BY_FLAG, ids=[flag for _, flag in REFUSED_BY_FLAG])
def test_what_beeyard_does_not_have_is_refused_by_the_flag(body: dict[str, Any], flag: str) -> None:
    with pytest.raises(Unsupported, match=flag):
        read_service_spec(body)


INVALID = [
    ({**a_body(), "Name": "-web"}, "valid as a DNS name component"),
    ({**a_body(), "Name": "w" * 64}, "valid as a DNS name component"),
    ({"Name": "b"}, "mismatched Runtime"),
    ({**a_body(), "Mode": {"Replicated": {}, "Global": {}}}, "only one service mode"),
    ({**a_body(), "Mode": {"Replicated": {"Replicas": -1}}}, "Replicas"),
    ({**a_body(), "Mode": {"Replicated": {"Replicas": 2.0}}}, "Replicas"),
    (
        {**a_body(), "Mode": {"Replicated": {"Replicas": 100_001}}},
        r"Mode\.Replicated\.Replicas \(--replicas\): 100001 is not between 0 and 100000",
    ),
    (a_body(StopGracePeriod=2**63 - 1), r"StopGracePeriod: 9223372036854775807 ns is longer than ten years, 87600h"),
    (
        {**a_body(), "UpdateConfig": {"Monitor": 3650 * 86400 * 10**9 + 1}},
        r"UpdateConfig\.Monitor: 315360000000000001 ns is longer",
    ),
    ({**a_body(), "name": "db"}, "name: the same field is given as Name too"),
    (a_body(Labels={"a\0": "x"}), r"ContainerSpec\.Labels: it must not contain a zero byte"),
    (a_body(Labels={" ": "x"}), r"ContainerSpec\.Labels: a name in it is empty"),
    ({**a_body(), "Nonsense": 1}, "Nonsense"),
    (a_body(Nonsense=[1]), r"TaskTemplate\.ContainerSpec\.Nonsense"),
    (a_body(Image=""), "image reference must be provided"),
    (a_body(Image="a b"), "not an image reference"),
    (a_body(Env=["NOVALUE"]), "NAME=value"),
    (a_body(Env=["=x"]), "NAME=value"),
    (a_body(Args=["a\0b"]), "zero byte"),
    (a_body(Dir="relative"), "absolute path"),
    (a_body(StopSignal="SIGNONE"), "no signal"),
    (a_body(StopSignal="99"), "no signal"),
    (a_body(Hostname="-x"), "host name"),
    (a_body(User="4294967295"), r"--user\): 4294967295 is not an id from 0 to 4294967294"),
    (a_body(User="1000:4294967295"), "--user.*4294967295 is not an id"),
    (a_body(User="9" * 5000), "--user.*is not an id"),
    (a_body(User="²"), "--user.*'²' is neither a name nor an id"),
    (a_body(User="nobody:²"), "--user.*'²' is neither a name nor an id"),
    (a_body(User="-1"), "--user.*'-1' is neither"),
    (a_body(User="a b"), "--user.*'a b' is neither"),
    (a_body(User="a:b:c"), "--user.*'b:c' is neither"),
    (a_body(Env=["A=" + "x" * 131_072]), r"Env \(--env\): 'A=x.* has 131074 bytes, more than 131071"),
    (a_body(Args=["ä" * 65_536]), r"Args \(--args\): 'ä.* has 131072 bytes, more than 131071"),
    (a_body(Command=["x" * 131_072]), r"Command \(--entrypoint\): 'x.* has 131072 bytes"),
    (a_body(Args=["x" * 100_000] * 5, Env=["A=" + "x" * 100_000] * 6), "Args: command, arguments and environment have"),
    (a_body(Args=["x"] * 110_000), "Args: command, arguments and environment have 1100000 bytes together"),
    (a_body(Dir="/" + "x" * 4095), "Dir: .* is longer than 4095 bytes"),
    (
        {**a_body(), "Labels": {f"{i:03}": "x" * 1000 for i in range(270)}},
        "Labels: it has 270810 bytes, more than 262144",
    ),
    (
        {
            **a_body(Args=["x" * 100_000] * 10, Labels={"a": "x" * 260_000}),
            "Labels": {"a": "x" * 260_000},
            "Networks": [{"Target": "x" * 600_000}],
        },
        "TaskTemplate: with its labels it has",
    ),
    ([], "JSON object"),
]
INVALID_IN_TEMPLATE: list[tuple[dict[str, Any], str]] = [
    ({"ContainerSpec": None}, "ContainerSpec"),
    ({"Resources": {"Limits": {"NanoCPUs": 100}}}, "at least 0.001"),
    ({"Resources": {"Limits": {"MemoryBytes": 1024}}}, "at least 4 MiB"),
    ({"Resources": {"Limits": {"Pids": -1}}}, "Pids"),
    (
        {"Resources": {"Limits": {"Pids": 2**63 - 1}}},
        r"Pids \(--limit-pids\): 9223372036854775807 is not between 0 and 4194304",
    ),
    (
        {"Resources": {"Limits": {"NanoCPUs": 10**18}}},
        r"NanoCPUs \(--limit-cpu\): 1000000000 CPUs are more than any node has: at most 8192",
    ),
    ({"Resources": {"Reservations": {"NanoCPUs": 2**63 - 1}}}, r"\(--reserve-cpu\).* at most 8192"),
    (
        {"Resources": {"Limits": {"MemoryBytes": 2**52 + 1}}},
        r"\(--limit-memory\).* 4.01 PiB is more than any node has: at most 4 PiB",
    ),
    ({"Resources": {"Reservations": {"MemoryBytes": 2**63 - 1}}}, r"\(--reserve-memory\).* at most 4 PiB"),
    (
        {"Placement": {"MaxReplicas": 2**31}},
        r"Placement\.MaxReplicas \(--replicas-max-per-node\): 2147483648 is not between 0 and 100000",
    ),
    ({"RestartPolicy": {"Condition": "sometimes"}}, "none of none, on-failure, any"),
    ({"Networks": [{"Target": ""}]}, "must be named"),
]
INVALID += [({**a_body(), "TaskTemplate": {**a_body()["TaskTemplate"], **t}}, w) for t, w in INVALID_IN_TEMPLATE]


@pytest.mark.parametrize(("body", "words"), INVALID, ids=[words for _, words in INVALID])
def test_a_value_that_cannot_work_is_refused_by_the_field(body: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        read_service_spec(body)
    assert caught.value.http_status == 400


@pytest.mark.parametrize(
    "user", ["", "0", "nobody", "4294967294:0", "www-data:4294967294", "DOM\\joe.x@site", "host$", ":adm", "_apt:"]
)
def test_users_that_a_node_may_have_are_taken(user: str) -> None:
    assert read_service_spec(a_body(User=user)).task.user == user


def test_the_largest_numbers_that_are_taken_read_back_as_they_are_shown() -> None:
    body = a_body(StopGracePeriod=3650 * 86400 * 10**9)
    body["TaskTemplate"]["Resources"] = {
        "Limits": {"NanoCPUs": 8192 * 10**9, "MemoryBytes": 2**52, "Pids": 2**22},
        "Reservations": {"NanoCPUs": 8192 * 10**9, "MemoryBytes": 2**52},
    }
    body["TaskTemplate"]["Placement"] = {"MaxReplicas": 100_000}
    body["Mode"] = {"Replicated": {"Replicas": 100_000}}
    spec = read_service_spec(body)
    assert read_service_spec(show_service_spec(spec, defaults=False)) == spec


def test_a_long_argument_that_a_program_can_be_given_is_taken() -> None:
    longest = ("x" * 131_071,) * 7
    assert read_service_spec(a_body(Args=list(longest))).task.args == longest


@pytest.mark.parametrize(
    ("given", "stored"),
    [("SIGTERM", "SIGTERM"), ("int", "SIGINT"), ("9", "SIGKILL"), ("SIGUSR1", "SIGUSR1"), ("", "SIGTERM")],
)
def test_a_stop_signal_is_known_by_name_and_number(given: str, stored: str) -> None:
    assert read_service_spec(a_body(StopSignal=given)).task.stop_signal == stored


def test_an_empty_template_says_what_is_missing() -> None:
    with pytest.raises(InvalidSpec, match="ContainerSpec"):
        read_service_spec({"Name": "b", "TaskTemplate": {"ForceUpdate": 0}})
