"""Docker's nodes ↔ `NodeSpec` and `Node`."""

from __future__ import annotations

from typing import Any

from beeyard.core.constraint import coordinate_of
from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.membership import rtt_s
from beeyard.core.model import Cluster, Node, NodeSpec
from beeyard.core.name import NAME_RULE, is_name
from beeyard.core.resources import Resources, Room
from beeyard.core.states import Availability, Role
from beeyard.manager.api.docker_resources import show_amounts, show_resources
from beeyard.manager.api.docker_value import compact, time_of
from beeyard.manager.api.fields import Fields

# What every node's agent brings along; macvlan and its like are probed.
NETWORK_PLUGINS = ("host",)


def is_manager(node: Node, cluster: Cluster) -> bool:
    """Whether this node is the manager's own host."""
    return node.id == cluster.manager_node_id


def shown_role(node: Node, cluster: Cluster) -> Role:
    """The role that users see: the manager's own host is a manager whatever its record says."""
    return Role.MANAGER if is_manager(node, cluster) else node.spec.role


def read_node_spec(body: object, node: Node, cluster: Cluster) -> NodeSpec:
    """A whole NodeSpec, as an update sends it.

    Raises:
        InvalidSpec, Unsupported
    """
    fields = Fields(body)
    # Both must be said, as in Docker: an update replaces all, and a body that is empty by mistake would wipe the labels.
    role = Role(_required(fields, "Role", tuple(Role)))
    if role is not shown_role(node, cluster):
        verb = "promote" if role is Role.MANAGER else "demote"
        raise Unsupported(f"docker node {verb}", "a cluster has one manager for now")
    spec = NodeSpec(
        name=_name(fields, node.spec.name),
        labels=fields.labels("Labels"),
        role=node.spec.role,
        availability=Availability(_required(fields, "Availability", tuple(Availability))),
    )
    fields.finish()
    return spec


def _required(fields: Fields, name: str, allowed: tuple[str, ...]) -> str:
    value = fields.text(name)
    if value not in allowed:
        raise InvalidSpec(name, f'"{value:.80}" is none of {", ".join(allowed)}')
    return value


def _name(fields: Fields, present: str) -> str:
    """The node's name; one that it has already is kept whatever it is."""
    name = fields.text("Name")
    if name not in ("", present) and not is_name(name):
        raise InvalidSpec("Name", f"{name!r:.80}: {NAME_RULE}")
    return name


def show_node(
    node: Node, cluster: Cluster, manager_address: str, room: Room | None = None, manager_node: Node | None = None
) -> dict[str, Any]:
    """A node as `GET /nodes/ID` gives it.

    Args:
        manager_address: HOST:PORT of this manager.
        room: what it has for tasks, which Docker does not show.
        manager_node: the manager's own host, to tell how far a node that gossips is from it.
    """
    description = node.description
    shown: dict[str, Any] = {
        "ID": node.id,
        "Version": {"Index": node.version},
        "CreatedAt": time_of(node.created_at_s),
        "UpdatedAt": time_of(node.updated_at_s),
        "Spec": {
            **compact(Name=node.spec.name),
            "Labels": node.spec.labels,
            "Role": str(shown_role(node, cluster)),
            "Availability": str(node.spec.availability),
        },
        "Description": {
            "Hostname": description.hostname,
            "Platform": compact(Architecture=description.platform.architecture, OS=description.platform.os),
            "Resources": show_resources(description.resources),
            "Engine": {
                "EngineVersion": description.engine_version,
                **compact(Labels=description.engine_labels),
                "Plugins": [
                    {"Type": kind, "Name": name}
                    for kind, names in (
                        ("Network", {*NETWORK_PLUGINS, *description.link_kinds}),
                        ("Volume", description.volume_drivers),
                        ("Log", description.log_drivers),
                        ("NodeHook", description.hooks),
                        ("Tag", [f"{key}={value}" for key, value in _tags(node).items()]),
                    )
                    for name in sorted(names)
                ],
            },
            "TLSInfo": show_tls_info(cluster),
            **({} if description.membership is None else {"Gossip": _show_gossip(node, manager_node)}),
        },
        "Status": {
            "State": str(node.status.state),
            **compact(Message=node.status.message, Addr=node.status.address),
            **({} if room is None else {"Resources": _show_room(room, description.reserved)}),
        },
    }
    if is_manager(node, cluster):
        shown["ManagerStatus"] = {"Leader": True, "Reachability": "reachable", "Addr": manager_address}
    return shown


def _tags(node: Node) -> dict[str, str]:
    membership = node.description.membership
    return {} if membership is None else membership.tags


def _show_gossip(node: Node, manager_node: Node | None) -> dict[str, Any]:
    """What its agent says of its member; times in milliseconds."""
    membership = node.description.membership
    assert membership is not None
    shown: dict[str, Any] = {"Member": membership.name, "Tags": dict(sorted(membership.tags.items()))}
    here, there = membership.coordinate, coordinate_of(manager_node)
    if here is not None:
        shown["Coordinate"] = {
            "Vec": [round(x * 1e3, 6) for x in here.vec],
            "Height": round(here.height * 1e3, 6),
            "Adjustment": round(here.adjustment * 1e3, 6),
            "Error": round(here.error, 3),
        }
        if there is not None and manager_node is not None and manager_node.id != node.id:
            shown["EstimatedRoundTripMs"] = {
                manager_node.description.hostname or manager_node.id: round(rtt_s(here, there) * 1e3, 3)
            }
    return shown


def _show_room(room: Room, kept: Resources) -> dict[str, Any]:
    amounts = {"Kept": kept, "Total": room.total, "Reserved": room.taken, "Free": room.free}
    shown = {name: show_amounts(resources) for name, resources in amounts.items()}
    return {**{name: amount for name, amount in shown.items() if name != "Kept" or amount}, "Tasks": room.n_tasks}


def show_tls_info(cluster: Cluster) -> dict[str, Any]:
    """What identifies the cluster's CA."""
    return {"TrustRoot": cluster.ca_certificate_pem.decode("ascii", "replace")}


__all__ = ["is_manager", "read_node_spec", "show_node", "show_tls_info", "shown_role"]
