"""Why a node cannot take a task: code, and the sentence for a person.

The order of the codes is the order of the filters: a node counts under the first that it fails. Words are SwarmKit's where it
has the filter (its grammar included), so that scripts which look for them keep working; the others are Beeyard's.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

NO_SUITABLE_NODE = "no suitable node"


class Reason(enum.StrEnum):
    """The first filter that a node fails; what `detail` says is in the comment."""

    UNKNOWN_NODE = "unknown_node"  # the node's id
    NOT_READY = "not_ready"
    RESOURCES = "resources"
    IMAGE = "image"  # the image
    NO_FORWARDING = "no_forwarding"
    PLUGIN = "plugin"  # "network driver macvlan", "log driver syslog", "volume driver nfs"
    UNKNOWN_NETWORK = "unknown_network"  # the network's id
    NO_POOL = "no_pool"  # the network
    NO_PINNED_POOL = "no_pinned_pool"  # "10.1.0.10 in network lan"
    PARENT_MISSING = "parent_missing"  # "eth0 for network lan"
    PARENT_TAKEN = "parent_taken"  # "eth0 for network lan is used by ipvlan", by links of hosts or of other tasks
    CONSTRAINT = "constraint"
    PLATFORM = "platform"
    HOST_PORT = "host_port"
    MAX_REPLICAS = "max_replicas"
    POOL_EXHAUSTED = "pool_exhausted"  # names of the pools that serve the node, joined by ", "
    VOLUMES = "volumes"
    REFUSED = "refused"


_RANK = {reason: rank for rank, reason in enumerate(Reason)}


def sentence(reason: str, detail: str, n_nodes: int) -> str:
    """One reason and how many nodes it holds for, such as "insufficient resources on 2 nodes"."""
    on = "on 1 node" if n_nodes == 1 else f"on {n_nodes} nodes"
    match Reason(reason):
        case Reason.UNKNOWN_NODE:
            return f"node {detail} is not known"
        case Reason.NOT_READY:
            count = "1 node" if n_nodes == 1 else f"{n_nodes} nodes"
            return f"{count} not available for new tasks"
        case Reason.RESOURCES:
            return f"insufficient resources {on}"
        case Reason.IMAGE:
            return f"missing executor for image {detail} {on}"
        case Reason.NO_FORWARDING:
            return f"no nftables to publish ports {on}"
        case Reason.PLUGIN:
            return f"missing plugin {on}: {detail}"
        case Reason.UNKNOWN_NETWORK:
            return f"network {detail} is not known {on}"
        case Reason.NO_POOL:
            return f"network {detail} has no pool for this node {on}"
        case Reason.NO_PINNED_POOL:
            return f"no pool with address {detail} for this node {on}"
        case Reason.PARENT_MISSING:
            return f"missing parent interface {detail} {on}"
        case Reason.PARENT_TAKEN:
            return f"parent interface {detail} {on}"
        case Reason.CONSTRAINT:
            return f"scheduling constraints not satisfied {on}"
        case Reason.PLATFORM:
            return f"unsupported platform {on}"
        case Reason.HOST_PORT:
            return f"host-mode port already in use {on}"
        case Reason.MAX_REPLICAS:
            return "max replicas per node limit exceed"  # SwarmKit's text, letter by letter
        case Reason.POOL_EXHAUSTED:
            return f"no address left in {'pools' if ', ' in detail else 'pool'} {detail} {on}"
        case Reason.VOLUMES:
            return f"cannot fulfill requested CSI volume mounts {on}"
        case Reason.REFUSED:
            return f"refused by an allocation hook {on}"


def lack(reason: str, detail: str) -> str:
    """What one node lacks, such as "no address left in its pools"; `detail` says what where there may be several."""
    match Reason(reason):
        case Reason.NOT_READY:
            return "not available for new tasks"
        case Reason.RESOURCES:
            return f"insufficient {detail or 'resources'}"
        case Reason.CONSTRAINT:
            return f"constraint {detail} not satisfied" if detail else "scheduling constraints not satisfied"
        case Reason.PLUGIN:
            return f"missing plugin {detail}"
        case Reason.HOST_PORT:
            return f"port {detail} already in use"
        case Reason.POOL_EXHAUSTED:
            return f"no address left for network {detail}" if detail else "no address left in its pools"
        case Reason.VOLUMES:
            return f"volume {detail} cannot be mounted"
        case _:
            return " ".join(sentence(reason, detail, 1).replace("on 1 node", "").split())


def explain(counts: Iterable[tuple[str, str, int]]) -> str:
    """The whole sentence for (reason, detail, nodes) counts in the order of `in_order`."""
    sentences = [sentence(*count) for count in counts]
    return f"{NO_SUITABLE_NODE} ({'; '.join(sentences)})" if sentences else NO_SUITABLE_NODE


def of_demand(node_id: str, counts: Sequence[tuple[str, str, int]]) -> str:
    """The same of a demand: SwarmKit says of a task that is bound to a node ("": to none) just what that node lacks."""
    return sentence(*counts[0]) if node_id else explain(counts)


def in_order(counts: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Most frequent first, then in the order of the filters, then by detail."""
    return sorted(counts, key=lambda count: (-count[2], _RANK[Reason(count[0])], count[1]))


__all__ = ["NO_SUITABLE_NODE", "Reason", "explain", "in_order", "lack", "of_demand", "sentence"]
