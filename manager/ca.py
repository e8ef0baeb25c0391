"""The cluster's identity: its CA, its join tokens, and the certificates of its nodes.

A join token is `SWMTKN-1-DIGEST-SECRET`: the digest of the CA's certificate (50 base36 digits), by which an agent knows
that it talks to the right cluster, and a secret (25 digits) that names a role. Source: SwarmKit `ca/config.go`.

Everything is checked and signed before anything is stored: a join that fails leaves no node behind. A node's record names
the certificate that is in force. A renewed one takes its place when it is first *used*: an agent that crashed before it
could store the new certificate still gets in with the old one.

The manager's own certificate is made anew in memory, at start and at half of its life, and never stored.
"""

from __future__ import annotations

import hmac
import re
from typing import Protocol

import msgspec
import structlog

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.model import Cluster, Node, NodeDescription, NodeSpec, NodeStatus
from beeyard.core.name import NAME_RULE, is_name
from beeyard.core.states import NodeState, Role
from beeyard.core.wire import IdentityReply, JoinRequest, Refused
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Credentials, Host

TOKEN_PATTERN = re.compile(r"SWMTKN-1-([0-9a-z]{50})-([0-9a-z]{25})")
_NODE_ID_PATTERN = re.compile(r"[0-9a-z]{25}")
# A request for a P-256 key is some 400 bytes, a name 253 characters at most (RFC 1035).
CSR_BYTES_MAX = 8192
HOSTNAME_CHARACTERS_MAX = 253
# Renewals whose certificate was lost on the way, in a row; an agent that loses more must join again.
RENEWED_SERIALS_MAX = 4
# Status message of a node between its join and its first session.
JOINED = "joined; its agent has not opened a session yet"

log = structlog.get_logger(__name__)


class IdentityConfig(Protocol):
    """What of the manager's configuration matters here."""

    @property
    def node_name(self) -> str:
        """Name of the node on this manager's own host; "" for its hostname."""


async def bootstrap(host: Host, store: Store, config: IdentityConfig, *, heartbeat_s: float = 5.0) -> Authority:
    """The cluster's authority; on a manager's first start the cluster is made.

    Args:
        heartbeat_s: how often agents of a cluster that is made now say that they are there.

    Raises:
        DiskError: the cluster's record cannot be stored.
    """
    if store.cluster is None:
        cluster_id = host.new_id()
        certificate_pem, key_pem = host.pki.new_authority(cluster_id, host.wall_now_s())
        cluster = Cluster(
            id=cluster_id,
            ca_certificate_pem=certificate_pem,
            ca_key_pem=key_pem,
            worker_secret=host.new_id(),
            manager_secret=host.new_id(),
            manager_node_id=host.new_id(),
            heartbeat_s=heartbeat_s,
        )
        await store.commit(lambda tx: tx.create(cluster))
        log.info("cluster made", cluster=cluster_id)
    return Authority(host, store, config)


class Authority:
    """The CA of a cluster that exists. Its methods answer refusals as values, ready to be sent."""

    def __init__(self, host: Host, store: Store, config: IdentityConfig) -> None:
        self._host = host
        self._store = store
        self._node_name = config.node_name or host.hostname
        self._credentials: Credentials | None = None
        self._credentials_until_s = 0.0

    @property
    def cluster(self) -> Cluster:
        """The record of the cluster."""
        cluster = self._store.cluster
        assert cluster is not None, "bootstrap makes the cluster first"
        return cluster

    def credentials(self) -> Credentials:
        """What this manager shows and believes, for `Net.listen`. Renewed at half of its life."""
        now_s = self._host.wall_now_s()
        if self._credentials is None or now_s >= self._credentials_until_s:
            csr_pem, key_pem = self._host.pki.new_request()
            self._credentials = Credentials(
                certificate_pem=self._sign(csr_pem, self.cluster.manager_node_id, Role.MANAGER),
                key_pem=key_pem,
                ca_certificate_pem=self.cluster.ca_certificate_pem,
            )
            self._credentials_until_s = now_s + self.cluster.certificate_valid_s / 2
        return self._credentials

    # --- join tokens ---

    def join_token(self, role: Role) -> str:
        """The token with which a node gets this role."""
        secret = self.cluster.manager_secret if role is Role.MANAGER else self.cluster.worker_secret
        return f"SWMTKN-1-{self._host.pki.digest(self.cluster.ca_certificate_pem)}-{secret}"

    async def rotate_join_token(self, role: Role) -> str:
        """Make the token of a role invalid and give its successor. Nodes that have joined stay.

        Raises:
            DiskError: the old one is still valid.
        """
        secret = self._host.new_id()

        def build(tx: Transaction) -> None:
            assert tx.cluster is not None
            if role is Role.MANAGER:
                tx.update(msgspec.structs.replace(tx.cluster, manager_secret=secret))
            else:
                tx.update(msgspec.structs.replace(tx.cluster, worker_secret=secret))

        await self._store.commit(build)
        log.info("join token rotated", role=role)
        return self.join_token(role)

    def role_of_token(self, token: str) -> Role | Refused:
        """The role that a token gives. Takes the same time for any secret of the right form."""
        match = TOKEN_PATTERN.fullmatch(token)
        if match is None:
            return Refused(reason="this is not a join token: it looks like SWMTKN-1-(50 digits)-(25 digits)")
        digest, secret = match.groups()
        if digest != self._host.pki.digest(self.cluster.ca_certificate_pem):
            return Refused(reason="the join token is of another cluster: it names another CA")
        is_manager = hmac.compare_digest(secret, self.cluster.manager_secret)
        is_worker = hmac.compare_digest(secret, self.cluster.worker_secret)
        if is_manager:
            return Role.MANAGER
        if is_worker:
            return Role.WORKER
        return Refused(
            reason="the join token is not valid: it is wrong or was rotated; ask a manager for the present one"
        )

    # --- nodes ---

    async def join(self, request: JoinRequest, *, manager_node_connected: bool) -> IdentityReply | Refused:
        """Make a node of an agent that has a token, DOWN until its first session.

        Raises:
            DiskError: it cannot be stored; nothing is left behind.
        """
        role = self.role_of_token(request.token)
        if isinstance(role, Refused):
            return role
        if refused := self._check_request(request):
            return refused
        if role is Role.MANAGER:
            if request.hostname != self._node_name:
                return Refused(
                    reason=f"host {request.hostname} cannot become a manager: a cluster has one manager for now, "
                    f"{self._node_name}; join with the worker token"
                )
            if manager_node_connected:
                return Refused(reason=f"an agent of host {request.hostname} is connected already", retry=True)
        return await self._make_node(request, role)

    async def withdraw(self, reply: IdentityReply) -> None:
        """The answer to a join could not be delivered: nobody has its certificate, so the node goes again.

        Raises:
            DiskError
        """
        serial = self._serial(reply.certificate_pem)

        def build(tx: Transaction) -> None:
            node = tx.get(Node, reply.node_id)
            # Only the node as the join made it; a manager's node that was there before stays.
            if node is not None and node.certificate_serial == serial and node.status.message == JOINED:
                tx.delete(Node, node.id)

        await self._store.commit(build)

    async def renew(self, node_id: str, csr_pem: bytes) -> IdentityReply | Refused:
        """A further certificate for a node. The one in force stays valid until this one is used.

        Raises:
            DiskError
        """
        node = self._store.nodes.get(node_id)
        if node is None:
            return Refused(reason=f"node {node_id} is not in this cluster", removed=True)
        if len(csr_pem) > CSR_BYTES_MAX:
            return Refused(reason=f"the certificate request is larger than {CSR_BYTES_MAX} bytes")
        try:
            certificate_pem = self._sign(csr_pem, node_id, node.spec.role)
        except RemoteProtocolError as error:
            return Refused(reason=f"cannot renew the certificate: {error}")
        serial = self._serial(certificate_pem)

        def build(tx: Transaction) -> bool:
            now = tx.get(Node, node_id)
            if now is not None:
                serials = (*now.renewed_serials, serial)[-RENEWED_SERIALS_MAX:]
                tx.update(msgspec.structs.replace(now, renewed_serials=serials))
            return now is not None

        if not await self._store.commit(build):
            return Refused(reason=f"node {node_id} was removed from the cluster", removed=True)
        return self._reply(node_id, certificate_pem)

    def _check_request(self, request: JoinRequest) -> Refused | None:
        if len(request.csr_pem) > CSR_BYTES_MAX:
            return Refused(reason=f"the certificate request is larger than {CSR_BYTES_MAX} bytes")
        if not 0 < len(request.hostname) <= HOSTNAME_CHARACTERS_MAX:
            return Refused(reason=f"the hostname must have 1 to {HOSTNAME_CHARACTERS_MAX} characters")
        if not is_name(request.hostname):
            return Refused(reason=f"this node cannot be called {request.hostname!r:.80}: {NAME_RULE}")
        return None

    async def _make_node(self, request: JoinRequest, role: Role) -> IdentityReply | Refused:
        node_id = self._node_id_for(request, role)
        try:
            certificate_pem = self._sign(request.csr_pem, node_id, role)
        except RemoteProtocolError as error:
            return Refused(reason=f"cannot join: {error}")
        serial = self._serial(certificate_pem)

        def build(tx: Transaction) -> Refused | None:
            if self.role_of_token(request.token) is not role:
                return Refused(reason="the join token was rotated meanwhile")
            node = tx.get(Node, node_id)
            if node is not None and role is Role.WORKER:
                return Refused(reason=f"node id {node_id} was taken meanwhile", retry=True)
            if node is not None:
                tx.update(msgspec.structs.replace(node, certificate_serial=serial, renewed_serials=()))
                return None
            status = NodeStatus(state=NodeState.DOWN, message=JOINED, since_s=tx.now_s)
            tx.create(
                Node(
                    id=node_id,
                    spec=NodeSpec(role=role),
                    description=NodeDescription(hostname=request.hostname),
                    status=status,
                    certificate_serial=serial,
                )
            )
            return None

        refused = await self._store.commit(build)
        if refused is not None:
            return refused
        log.info("node joined", node=node_id, hostname=request.hostname, role=role)
        return self._reply(node_id, certificate_pem)

    def _node_id_for(self, request: JoinRequest, role: Role) -> str:
        """The id of a node that joins: the one it had if nobody has it now, so that it finds its tasks again."""
        if role is Role.MANAGER:
            return self.cluster.manager_node_id
        wanted = request.node_id
        taken = wanted in self._store.nodes or wanted == self.cluster.manager_node_id
        if taken or not _NODE_ID_PATTERN.fullmatch(wanted):
            return self._host.new_id()
        return wanted

    def _sign(self, csr_pem: bytes, node_id: str, role: Role) -> bytes:
        cluster = self.cluster
        return self._host.pki.sign(
            (cluster.ca_certificate_pem, cluster.ca_key_pem),
            csr_pem,
            node_id=node_id,
            role=role,
            organization=cluster.id,
            now_s=self._host.wall_now_s(),
            valid_s=cluster.certificate_valid_s,
        )

    def _serial(self, certificate_pem: bytes) -> str:
        return self._host.pki.inspect(certificate_pem).serial

    def _reply(self, node_id: str, certificate_pem: bytes) -> IdentityReply:
        return IdentityReply(
            node_id=node_id, certificate_pem=certificate_pem, ca_certificate_pem=self.cluster.ca_certificate_pem
        )
