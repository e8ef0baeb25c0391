"""What hooks reserve for tasks: grants, each made by one hook and carried with the task until it is terminal.

Stored with their task, sent to its agent with it, and given back by their id; see `manager.hooks`.
"""

from __future__ import annotations

import msgspec

from beeyard.core.resources import GenericResource
from beeyard.core.volume import VolumeUse


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="kind"):
    """Something a hook reserved for one task: base of the tagged kinds below. Held until the task is terminal."""

    id: str
    hook: str


class AddressGrant(Grant, frozen=True, kw_only=True, gc=False, tag="address"):
    """One task's place on one network: a link with an address of each family that its pool serves."""

    network_id: str
    network_name: str
    pool_id: str  # id of the config-only network that the address came from, or of the network itself
    pool_name: str
    segment: str  # addresses are unique per segment
    driver: str  # "macvlan" | "ipvlan"
    mode: str = "bridge"  # macvlan: bridge, private, vepa, passthru; ipvlan: l2, l3, l3s
    flag: str = ""  # ipvlan alone: whether its links speak to each other: bridge (as ""), private, vepa
    parent: str = ""  # interface of the host, "eth0" or "eth0.10"
    addresses: tuple[
        str, ...
    ] = ()  # with the subnet's prefix length: "10.77.0.64/24", "fd00::40/64"; none with IPAM driver null
    gateways: tuple[str, ...] = ()  # at most one per family
    mac: str = ""  # "": the kernel draws one
    mtu: int = 0  # 0: the parent's
    internal: bool = False  # no default route
    host_access: bool = False  # the task's own host reaches it too, over a link of its own on the parent


class NoteGrant(Grant, frozen=True, kw_only=True, gc=False, tag="note"):
    """A reservation that is only text, for hooks whose result the agent just passes on."""

    data: dict[str, str] = {}


class MappedPort(msgspec.Struct, frozen=True, kw_only=True, gc=False, order=True):
    """A port of the node and the port of the task behind it."""

    protocol: str = "tcp"  # tcp, udp, sctp
    published: int
    target: int


class PortGrant(Grant, frozen=True, kw_only=True, gc=False, tag="port"):
    """Ports of the node that lead to the task."""

    ports: tuple[MappedPort, ...] = ()


class ResourceGrant(Grant, frozen=True, kw_only=True, gc=False, tag="resource"):
    """Generic resources of the node that are the task's alone: a claim."""

    resources: tuple[GenericResource, ...] = ()  # at most one for each kind, in order of the kinds


class VolumeGrant(Grant, frozen=True, kw_only=True, gc=False, tag="volume"):
    """Cluster volumes that the task has, one for each of its mounts that asks for one, in their order."""

    uses: tuple[VolumeUse, ...] = ()


AnyGrant = AddressGrant | NoteGrant | PortGrant | ResourceGrant | VolumeGrant


__all__ = ["AddressGrant", "AnyGrant", "Grant", "MappedPort", "NoteGrant", "PortGrant", "ResourceGrant", "VolumeGrant"]
