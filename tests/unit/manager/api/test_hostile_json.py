"""Whatever JSON a client sends, it is understood or refused with a reason; nothing else can come of it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.errors import RequestError
from beeyard.core.model import Cluster
from beeyard.manager.api.docker_network import read_network
from beeyard.manager.api.docker_node import read_node_spec
from beeyard.manager.api.docker_service import read_service_spec, show_service_spec
from beeyard.manager.api.filters import parse_filters
from tests.support.builders import a_node

SERVICE: dict[str, Any] = {
    "Name": "web",
    "Labels": {"a": "b"},
    "TaskTemplate": {
        "ContainerSpec": {"Image": "host", "Args": ["a"], "Env": ["A=1"], "StopSignal": "INT", "StopGracePeriod": 5},
        "Resources": {
            "Limits": {"NanoCPUs": 1_000_000, "Pids": 1},
            "Reservations": {
                "MemoryBytes": 1 << 30,
                "GenericResources": [{"DiscreteResourceSpec": {"Kind": "gpu", "Value": 1}}],
            },
        },
        "RestartPolicy": {"Condition": "any", "Delay": 1, "MaxAttempts": 1, "Window": 1},
        "Placement": {
            "Constraints": ["node.id==1"],
            "Platforms": [{"Architecture": "amd64", "OS": "linux"}],
            "Preferences": [{"Spread": {"SpreadDescriptor": "node.labels.zone:a=2"}}],
        },
        "LogDriver": {"Name": "local", "Options": {}},
        "Networks": [{"Target": "lan"}],
        "ForceUpdate": 1,
    },
    "Mode": {"Replicated": {"Replicas": 1}},
    "UpdateConfig": {"Parallelism": 1, "Delay": 1, "Monitor": 1, "MaxFailureRatio": 0.5, "Order": "stop-first"},
    "EndpointSpec": {"Mode": "vip", "Ports": []},
}
NETWORK: dict[str, Any] = {
    "Name": "lan",
    "Driver": "macvlan",
    "IPAM": {"Driver": "default", "Config": [{"Subnet": "10.1.0.0/24", "AuxiliaryAddresses": {"a": "10.1.0.1"}}]},
    "ConfigFrom": {"Network": "racks"},
    "Options": {"parent": "eth0"},
    "EnableIPv6": True,
}
NODE: dict[str, Any] = {"Name": "n", "Labels": {"a": "b"}, "Role": "worker", "Availability": "drain"}

READERS: dict[str, tuple[dict[str, Any], Callable[[Any], object]]] = {
    "service": (SERVICE, read_service_spec),
    "network": (NETWORK, lambda body: read_network(body, "id1")),
    "node": (NODE, lambda body: read_node_spec(body, a_node("n2"), Cluster(id="c", manager_node_id="n1"))),
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.just("\0"),
    st.just("SIGX"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value, itself included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with one value replaced."""
    if not path:
        return value
    changed = copy.deepcopy(body)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_body_with_one_wrong_value_is_understood_or_refused(kind: str, data: st.DataObject) -> None:
    body, read = READERS[kind]
    wrong = put(body, data.draw(st.sampled_from(places(body))), data.draw(VALUES))
    with contextlib.suppress(RequestError):
        read(wrong)


@pytest.mark.parametrize("kind", READERS)
def test_the_bodies_themselves_are_understood(kind: str) -> None:
    """Else the test above would prove nothing."""
    body, read = READERS[kind]
    assert read(body)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_an_accepted_service_reads_back_as_it_is_shown(data: st.DataObject) -> None:
    """No value is changed by the way through the docker command and back."""
    wrong = put(SERVICE, data.draw(st.sampled_from(places(SERVICE))), data.draw(SCALARS))
    try:
        spec = read_service_spec(wrong)
    except RequestError:
        return
    assert read_service_spec(show_service_spec(spec, defaults=False)) == spec


@settings(max_examples=40, deadline=None, derandomize=True)
@given(text=st.one_of(st.text(max_size=20), st.text(alphabet='{}[]":,truefalsnm1 ', max_size=20)))
def test_any_filter_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(RequestError):
        parse_filters(text)
