"""Request bodies as clients send them."""

from __future__ import annotations

from typing import Any


def a_service_body(**container: Any) -> dict[str, Any]:
    """What the docker command sends for the least that a user may say."""
    return {
        "Name": "web",
        "Labels": {},
        "TaskTemplate": {
            "ContainerSpec": {"Image": "host:latest", "Init": False, "DNSConfig": {}, **container},
            "Resources": {"Limits": {}, "Reservations": {}},
            "Placement": {},
            "ForceUpdate": 0,
        },
        "Mode": {"Replicated": {}},
        "EndpointSpec": {"Mode": "vip"},
    }
