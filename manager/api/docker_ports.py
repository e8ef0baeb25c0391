"""Docker's published ports: the EndpointSpec of a service, and the ports of its tasks.

Each port is that of the node on which a task runs (`mode=host`). A port that the whole cluster serves (`mode=ingress`, which
Docker takes when none is said) does not exist here.
"""

from __future__ import annotations

from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.grant import MappedPort
from beeyard.core.model import PublishedPort
from beeyard.manager.api.docker_value import compact
from beeyard.manager.api.fields import Fields

PROTOCOLS = ("tcp", "udp", "sctp")
PORT_MAX = 65535
# Each is a rule on the node and an entry of every message about the task.
PORTS_MAX = 1000


def read_ports(endpoint: Fields) -> tuple[PublishedPort, ...]:
    """The ports of an EndpointSpec, in their order.

    Raises:
        InvalidSpec, Unsupported: by the name of the field or flag.
    """
    if endpoint.text("Mode", "vip") != "vip":
        raise Unsupported("--endpoint-mode dnsrr")
    path = endpoint.name_of("Ports")
    items = endpoint.nested_list("Ports")
    endpoint.finish()
    if len(items) > PORTS_MAX:
        raise InvalidSpec(f"{path} (--publish)", f"{len(items)} ports are more than {PORTS_MAX}, the maximum")
    ports = tuple(_read_port(item) for item in items)
    seen = set()
    for port in ports:
        key = port.protocol, port.published
        if port.published and key in seen:
            raise InvalidSpec(f"{path} (--publish)", f"{port.published}/{port.protocol} is published twice")
        seen.add(key)
    return ports


def _read_port(fields: Fields) -> PublishedPort:
    mode = fields.choice("PublishMode", ("ingress", "host"), "ingress")
    protocol = fields.choice("Protocol", PROTOCOLS, "tcp")
    target = fields.integer("TargetPort", maximum=PORT_MAX, flag="--publish target=")
    published = fields.integer("PublishedPort", maximum=PORT_MAX, flag="--publish published=")
    name = fields.text("Name")
    if not target:
        raise InvalidSpec(
            f"{fields.name_of('TargetPort')} (--publish target=)", "the task's port, 1 to 65535, is needed"
        )
    fields.finish()
    if mode != "host":
        node_port = f",published={published}" if published else ""
        udp = f",protocol={protocol}" if protocol != "tcp" else ""
        raise Unsupported(
            "--publish (-p) in mode ingress", f"say mode=host: --publish mode=host,target={target}{node_port}{udp}"
        )
    return PublishedPort(protocol=protocol, target=target, published=published, name=name)


def show_port(port: PublishedPort) -> dict[str, Any]:
    """A PortConfig as it was asked for."""
    return {
        **compact(Name=port.name),
        "Protocol": port.protocol,
        "TargetPort": port.target,
        **compact(PublishedPort=port.published),
        "PublishMode": "host",
    }


def show_mapped_port(port: MappedPort) -> dict[str, Any]:
    """A PortConfig as a task has it."""
    return {
        "Protocol": port.protocol,
        "TargetPort": port.target,
        "PublishedPort": port.published,
        "PublishMode": "host",
    }


def show_endpoint_spec(ports: tuple[PublishedPort, ...]) -> dict[str, Any]:
    """The EndpointSpec of a service, as `update` takes it back."""
    return {"Mode": "vip", **compact(Ports=[show_port(port) for port in ports])}


def show_endpoint(ports: tuple[PublishedPort, ...]) -> dict[str, Any]:
    """What a service is reached at. As in Docker, ports in host mode are listed as they were asked for."""
    if not ports:
        return {"Spec": {}}
    return {"Spec": show_endpoint_spec(ports), "Ports": [show_port(port) for port in ports]}


__all__ = ["read_ports", "show_endpoint", "show_endpoint_spec", "show_mapped_port", "show_port"]
