"""Published ports as Docker's clients send them."""

from __future__ import annotations

from typing import Any

import pytest

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.model import PublishedPort
from beeyard.manager.api.docker_ports import read_ports, show_endpoint, show_endpoint_spec
from beeyard.manager.api.fields import Fields


def read(*ports: dict[str, Any]) -> tuple[PublishedPort, ...]:
    return read_ports(Fields({"Ports": list(ports)}, "EndpointSpec"))


def port(**fields: Any) -> dict[str, Any]:
    return {"TargetPort": 80, "PublishMode": "host", **fields}


def test_what_a_client_leaves_out_is_tcp_and_a_port_of_the_nodes_choice() -> None:
    assert read(port()) == (PublishedPort(target=80),)


def test_tcp_and_udp_of_one_number_are_two_ports_and_so_are_two_that_the_node_chooses() -> None:
    same = read(port(PublishedPort=53), port(PublishedPort=53, Protocol="udp"), port(), port())
    assert [(p.protocol, p.published) for p in same] == [("tcp", 53), ("udp", 53), ("tcp", 0), ("tcp", 0)]


def test_mode_ingress_is_refused_and_the_words_that_work_are_given() -> None:
    with pytest.raises(Unsupported) as refused:
        read({"TargetPort": 53, "PublishedPort": 5353, "Protocol": "udp", "PublishMode": "ingress"})
    assert str(refused.value) == (
        "--publish (-p) in mode ingress is not supported by beeyard: "
        "say mode=host: --publish mode=host,target=53,published=5353,protocol=udp"
    )


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ([port(PublishedPort=8080), port(PublishedPort=8080, TargetPort=81)], "8080/tcp is published twice"),
        ([port(TargetPort=0)], r"TargetPort \(--publish target=\): the task's port, 1 to 65535, is needed"),
        ([port(TargetPort=65536)], "65536 is not between 0 and 65535"),
        ([port(PublishedPort=-1)], "-1 is not between 0 and 65535"),
        ([port(Protocol="icmp")], "'icmp' is none of tcp, udp, sctp"),
        ([port(PublishMode="both")], "'both' is none of ingress, host"),
        ([port(HostIP="10.0.0.1")], "HostIP: there is no such field"),
        ([port()] * 1001, "1001 ports are more than 1000"),
    ],
)
def test_what_cannot_work_is_refused_by_field_and_value(ports: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        read(*ports)


def test_a_service_without_ports_has_an_empty_endpoint_as_in_docker() -> None:
    assert show_endpoint(()) == {"Spec": {}}
    assert show_endpoint_spec(()) == {"Mode": "vip"}


def test_a_service_shows_its_ports_as_they_were_asked_for() -> None:
    shown = show_endpoint(read(port(PublishedPort=8080), port(Name="x")))
    assert shown["Ports"] == [
        {"Protocol": "tcp", "TargetPort": 80, "PublishedPort": 8080, "PublishMode": "host"},
        {"Name": "x", "Protocol": "tcp", "TargetPort": 80, "PublishMode": "host"},
    ]
    assert shown["Spec"] == {"Mode": "vip", "Ports": shown["Ports"]}
