"""How a demand, or the cluster, can give way so that a task finds a place: single changes, and several taken together."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from beeyard.core.demand import Demand
from beeyard.core.model import Platform


class Yield(enum.StrEnum):
    """What gives way. The comment says what `name` and `amount` of a change are."""

    NODE = "node"  # id of a node that takes no tasks now and is to be made ready
    CPU = "cpu"  # how many 1e-9 cores less
    MEMORY = "memory"  # how many bytes less
    GENERIC = "generic"  # kind; how many less
    ADDRESSES = "addresses"  # pool's id; how many more
    MAX_REPLICAS = "max_replicas"  # the new limit
    REFUSALS = "refusals"
    HOST_PORT = "host_port"  # "8080/tcp"
    CONSTRAINT = "constraint"  # the expression
    PLATFORM = "platform"  # "linux/aarch64", which is to do too; "": any
    IMAGE = "image"  # another image
    LOG_DRIVER = "log_driver"  # the driver to do without
    VOLUME_DRIVER = "volume_driver"  # the driver to do without
    PUBLISHED_PORTS = "published_ports"
    PINS = "pins"  # the addresses, joined by ","
    VOLUME = "volume"  # source of the mount
    NETWORK = "network"  # id


class Change(msgspec.Struct, frozen=True):
    """One thing that gives way."""

    what: Yield
    text: str  # for a person, such as "without constraint node.labels.rack==r9"
    cost: int  # how much is given up, in thousandths; see `counterfactual`
    name: str = ""
    amount: int = 0


class Relaxation(msgspec.Struct, frozen=True):
    """Changes that place a task when all of them are made."""

    changes: tuple[Change, ...]
    demand: Demand  # with those of the changes that are the demand's
    n_nodes: int  # how many nodes take the task then
    node_ids: tuple[str, ...]  # some of them

    @property
    def text(self) -> str:
        """For a person, such as "0.5 CPU less: 12 nodes"."""
        nodes = "1 node" if self.n_nodes == 1 else f"{self.n_nodes} nodes"
        return f"{' and '.join(change.text for change in self.changes)}: {nodes}"

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Smallest first: few changes, then little ones, then those that open many nodes."""
        return len(self.changes), sum(change.cost for change in self.changes), -self.n_nodes, self.text


def relaxed(demand: Demand, changes: Iterable[Change]) -> Demand:
    """The demand with changes; those that are the cluster's leave it as it is."""
    for change in changes:
        if fields := _changed(demand, change):
            demand = msgspec.structs.replace(demand, **fields)
    return demand


def _changed(demand: Demand, change: Change) -> dict[str, Any]:
    """The fields that a change gives other values."""
    name, amount = change.name, change.amount
    match change.what:
        case Yield.CPU:
            return {"cpu_nano": demand.cpu_nano - amount}
        case Yield.MEMORY:
            return {"memory_bytes": demand.memory_bytes - amount}
        case Yield.GENERIC:
            left = ((kind, n - amount if kind == name else n) for kind, n in demand.generic)
            return {"generic": tuple((kind, n) for kind, n in left if n > 0)}
        case Yield.MAX_REPLICAS:
            return {"max_replicas_per_node": amount}
        case Yield.HOST_PORT:
            return {"host_ports": tuple(port for port in demand.host_ports if f"{port.port}/{port.protocol}" != name)}
        case Yield.CONSTRAINT:
            return {"constraints": tuple(expression for expression in demand.constraints if expression != name)}
        case Yield.PLATFORM:
            os, _, architecture = name.partition("/")
            more = Platform(architecture=architecture, os=os)
            return {"platforms": (*demand.platforms, more) if name else ()}
        case Yield.IMAGE:
            return {"image": name}
        case Yield.LOG_DRIVER:
            return {"log_driver": ""}
        case Yield.VOLUME_DRIVER:
            return {"volume_drivers": tuple(driver for driver in demand.volume_drivers if driver != name)}
        case Yield.PUBLISHED_PORTS:
            return {"forwards_ports": False}
        case Yield.PINS:
            return {"pins": ()}
        case Yield.VOLUME:
            return {"volumes": tuple(mount for mount in demand.volumes if mount.source != name)}
        case Yield.NETWORK:
            return {"network_ids": tuple(network_id for network_id in demand.network_ids if network_id != name)}
    return {}


__all__ = ["Change", "Relaxation", "Yield", "relaxed"]
