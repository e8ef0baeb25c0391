"""What users ask for: services of every kind that the networks of a cluster carry, drawn from the seed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from beeyard.runtime.sim import CPU_NANO
from tests.sim.layout import LAN, ROUTED, WHOLE, Layout
from tests.sim.sizes import FEW_TASKS, UNITS, Sizes
from tests.sim.volumes import mounts_of

FIXED_PORT = 8000
# Every machine has two for each task that there can be: what is asked for fits.
DEVICES = (*(f"gpu=g{number}" for number in range(128)), "ssd=1000")


@dataclasses.dataclass(frozen=True)
class Draft:
    """A service that is about to be created."""

    body: dict[str, Any]
    replicas: int
    replicas_max: int
    networks: tuple[str, ...]  # names


def draw_service(
    rng: random.Random, number: int, layout: Layout, network_ids: dict[str, str], sizes: Sizes, *, whole: bool = True
) -> Draft:
    """The service of that number; a name with a dash cannot be the start of some other service's id.

    `whole`: whether it may have links that take a whole interface each, which one service at a time may.
    """
    names = [name for name in layout.names() if rng.random() < (0.7 if name == LAN else 0.3)]
    if not whole and WHOLE in names:
        names.remove(WHOLE)
    labels = {"beeyard.on-isolation": "fence"} if rng.random() < 0.4 else {}
    if rng.random() < 0.2:
        names = [LAN]
        pins = layout.pins(number, sizes.n_tasks)
        labels = {"beeyard.on-isolation": "fence", "beeyard.addresses": pins}
    if rng.random() < 0.2 and names and not {ROUTED, WHOLE} & {*names}:
        labels["beeyard.mac"] = "per-slot"
    ports, replicas_max = draw_ports(rng, number, sizes)
    if WHOLE in names:
        replicas_max = min(FEW_TASKS, replicas_max)
    replicas = rng.randint(0, replicas_max)
    body = {
        "Name": f"web-{number}",
        "Labels": labels,
        "TaskTemplate": {
            "ContainerSpec": {"Image": "host:latest", "Args": ["sleep", "1000"], "Mounts": mounts_of(number)},
            "Resources": {
                "Reservations": {
                    "NanoCPUs": rng.choice(sizes.units) * CPU_NANO // UNITS,
                    "GenericResources": generic_of(number),
                }
            },
            "RestartPolicy": {"Condition": "any", "Delay": 1_000_000_000},
            "Networks": [{"Target": network_ids[name]} for name in names],
        },
        "EndpointSpec": {"Ports": ports},
        "Mode": {"Replicated": {"Replicas": replicas}},
    }
    return Draft(body=body, replicas=replicas, replicas_max=replicas_max, networks=tuple(names))


def generic_of(number: int) -> list[dict[str, Any]]:
    """What each task of a service asks for: devices by name or by number, and most services nothing."""
    asked = {1: {"gpu": 1}, 4: {"gpu": 2, "ssd": 3}}.get(number % 6, {})
    return [{"DiscreteResourceSpec": {"Kind": kind, "Value": amount}} for kind, amount in asked.items()]


def draw_ports(rng: random.Random, number: int, sizes: Sizes) -> tuple[list[dict[str, Any]], int]:
    """The ports of a service, and how many tasks it may have: two with the same fixed port need two nodes."""
    if rng.random() < 0.7:
        return [], sizes.n_tasks
    protocol = rng.choice(("tcp", "udp"))
    chosen = {"Protocol": protocol, "TargetPort": 81, "PublishMode": "host"}
    if rng.random() < 0.5:
        return [chosen], sizes.n_tasks
    fixed = {"Protocol": "tcp", "TargetPort": 80, "PublishedPort": FIXED_PORT + number, "PublishMode": "host"}
    return [fixed, chosen] if rng.random() < 0.5 else [fixed], min(FEW_TASKS, sizes.n_tasks)


__all__ = ["DEVICES", "FIXED_PORT", "Draft", "draw_ports", "draw_service", "generic_of"]
