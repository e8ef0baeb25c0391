"""Who may open a session, and how a session changes the node's record.

Pure checks, answered as a `Refused` that is ready to be sent. The TLS layer has already refused certificates that are
expired or of another CA; here is what only the store knows: removed nodes, superseded certificates, roles.
"""

from __future__ import annotations

import ipaddress

import msgspec

from beeyard.core.membership import coordinate_fault
from beeyard.core.model import Node, NodeDescription, NodeStatus
from beeyard.core.name import NAME_RULE, is_name
from beeyard.core.resources import AMOUNT_MAX, generic_fault
from beeyard.core.states import NodeState
from beeyard.core.wire import PROTOCOL_VERSION, Hello, Refused
from beeyard.manager.store import Transaction
from beeyard.runtime.host import Connection, PeerCertificate

# Source: SwarmKit `manager/dispatcher/nodes.go`: defaultRateLimitPeriod, rateLimitCount.
SESSIONS_MAX = 3
SESSIONS_WINDOW_S = 8.0
# A host's description changes when a person does something to it; an agent looks every 20 s.
DESCRIPTIONS_MAX = 6
DESCRIPTIONS_WINDOW_S = 20.0
# How long an agent stays away that speaks another version, or whose host cannot be described: it runs on, and comes back by
# itself once a person has put its release or this manager's right. 5,000 such agents cost a tenth of a core.
RELEASE_PAUSE_S = 60.0
# Ten times what a host with hundreds of links has to say.
DESCRIPTION_BYTES_MAX = 256 << 10
# No address of any host is handed out, in any pool: a host with more could empty the largest ones.
HOST_ADDRESSES_MAX = 1024
HOSTNAME_CHARACTERS_MAX = 253


class RateLimit:
    """Bounds how often each node does what has to be stored: an agent in a loop must not keep the store busy."""

    def __init__(self, n_max: int = SESSIONS_MAX, window_s: float = SESSIONS_WINDOW_S) -> None:
        self._n_max = n_max
        self._window_s = window_s
        self._done_s: dict[str, list[float]] = {}

    def allow(self, node_id: str, now_s: float) -> bool:
        """Whether the node may do it now; counts it if so."""
        recent = [at for at in self._done_s.get(node_id, ()) if now_s - at < self._window_s]
        allowed = len(recent) < self._n_max
        if allowed:
            recent.append(now_s)
        self._done_s[node_id] = recent
        return allowed

    def forget(self, node_id: str) -> None:
        """The node is gone from the cluster. Idempotent."""
        self._done_s.pop(node_id, None)


def check_hello(hello: Hello) -> Refused | None:
    """Whether the other side speaks our protocol and describes a host that can exist."""
    if hello.protocol_version != PROTOCOL_VERSION:
        return Refused(
            reason=f"the agent speaks version {hello.protocol_version} of the protocol, this manager version "
            f"{PROTOCOL_VERSION}: run the same release on both",
            retry=True,
            pause_s=RELEASE_PAUSE_S,
        )
    if fault := description_fault(hello.description):
        return Refused(reason=fault, retry=True, pause_s=RELEASE_PAUSE_S)
    return None


def check_certificate(node: Node | None, peer: PeerCertificate, now_s: float) -> Refused | None:
    """Whether a verified certificate is the one that is in force for a node of this cluster."""
    if peer.not_after_s <= now_s:
        return Refused(reason=f"the certificate of node {peer.node_id} has expired: join again with a token")
    if node is None:
        # Only our CA could sign its certificate: it was a member once.
        reason = f"node {peer.node_id} is not in this cluster: it was removed; join again with a token"
        return Refused(reason=reason, removed=True)
    if peer.serial != node.certificate_serial and peer.serial not in node.renewed_serials:
        return Refused(
            reason=f"the certificate of node {node.id} was superseded by a newer one: join again with a token"
        )
    if peer.role is not node.spec.role:
        return Refused(reason=f"the certificate of node {node.id} says {peer.role}, but the node is a {node.spec.role}")
    return None


def description_fault(description: NodeDescription) -> str:
    """What the store must not be given, as a sentence; "" when all is well."""
    for quantity, name in (
        (description.resources.cpu_nano, "CPU in 1e-9 cores"),
        (description.resources.memory_bytes, "memory in bytes"),
        (description.reserved.cpu_nano, "CPU that it keeps, in 1e-9 cores"),
        (description.reserved.memory_bytes, "memory that it keeps, in bytes"),
    ):
        if not 0 <= quantity <= AMOUNT_MAX:
            return f"the host describes itself with {quantity} for {name}, which cannot be"
    for resources in (description.resources, description.reserved):
        if fault := generic_fault(resources.generic):
            return f"the host describes itself wrongly: {fault}"
    if len(description.hostname) > HOSTNAME_CHARACTERS_MAX:
        return f"the host's name has {len(description.hostname)} characters, more than {HOSTNAME_CHARACTERS_MAX}"
    if description.hostname and not is_name(description.hostname):
        return f"this node cannot be called {description.hostname!r:.80}: {NAME_RULE}"
    membership = description.membership
    if (
        membership is not None
        and membership.coordinate is not None
        and (fault := coordinate_fault(membership.coordinate))
    ):
        return f"the host describes itself wrongly: {fault}"
    n_bytes = len(msgspec.msgpack.encode(description))
    if n_bytes > DESCRIPTION_BYTES_MAX:
        return f"the host describes itself with {n_bytes} bytes, more than {DESCRIPTION_BYTES_MAX}"
    n_addresses = sum(len(link.addresses) for link in description.links)
    if n_addresses > HOST_ADDRESSES_MAX:
        return f"the host has {n_addresses} addresses, more than {HOST_ADDRESSES_MAX}"
    for link in description.links:
        for address in link.addresses:
            try:
                ipaddress.ip_interface(address)
            except ValueError:
                return f"the host describes link {link.name} with {address!r}, which is not an address"
    return ""


def register(
    tx: Transaction, connection: Connection, peer: PeerCertificate, hello: Hello, *, ready: bool
) -> Refused | None:
    """Store that a node is READY and what its host is like. The certificate that it showed is now the one in force.

    Not `ready`: its state stays as it is until `make_ready`.
    """
    node = tx.get(Node, peer.node_id)
    refused = check_certificate(node, peer, tx.now_s)
    if refused is not None or node is None:
        return refused
    status = node.status
    address = _ip_of(connection.remote)
    if ready and (status.state is not NodeState.READY or status.address != address):
        status = NodeStatus(state=NodeState.READY, address=address, since_s=tx.now_s)
    renewed = node.renewed_serials
    if peer.serial in renewed:
        renewed = renewed[renewed.index(peer.serial) + 1 :]
    registered = msgspec.structs.replace(
        node,
        status=status,
        description=hello.description,
        certificate_serial=peer.serial,
        renewed_serials=renewed,
    )
    if registered != node:
        tx.update(registered)
    return None


def make_ready(tx: Transaction, node_id: str) -> None:
    """Store that a node is READY after all."""
    node = tx.get(Node, node_id)
    if node is not None and node.status.state is not NodeState.READY:
        status = msgspec.structs.replace(node.status, state=NodeState.READY, message="", since_s=tx.now_s)
        tx.update(msgspec.structs.replace(node, status=status))


def _ip_of(remote: str) -> str:
    """ "10.0.0.7" of "tcp://10.0.0.7:41822"; what is no such address as it is."""
    host, colon, _ = remote.removeprefix("tcp://").rpartition(":")
    return host.strip("[]") if colon and remote.startswith("tcp://") else remote
