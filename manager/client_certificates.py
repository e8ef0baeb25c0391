"""Certificates of people and programs that use the API from elsewhere, and the server's own for that.

The CA signs them with the role `client`, which no node has, and the cluster's record lists each that is valid: one
that is not on the list is refused, so taking it off revokes it at once. The key is made where it is used and stays there.
"""

from __future__ import annotations

import re

import msgspec
import structlog

from beeyard.core.amounts import duration_text
from beeyard.core.errors import InvalidSpec, NotFound, RemoteProtocolError
from beeyard.core.model import ClientCertificate, Cluster
from beeyard.core.states import Role
from beeyard.manager.config import ManagerConfig
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Credentials, Host

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}")
# 10 years; a shorter life is what protects where nobody notices that a key was copied.
VALID_S_MAX = 3650 * 86400.0
CSR_BYTES_MAX = 8192
# The record is read whole with each change of the cluster: 1,000 certificates are some 100 KB.
CLIENTS_MAX = 1000

log = structlog.get_logger(__name__)


class ClientCertificates:
    """Issues and revokes client certificates, and knows which ones are valid."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host = host
        self._store = store

    @property
    def _cluster(self) -> Cluster:
        cluster = self._store.cluster
        assert cluster is not None, "the API is served after the cluster was made"
        return cluster

    @property
    def ca_certificate_pem(self) -> bytes:
        """What a client has to trust."""
        return self._cluster.ca_certificate_pem

    def valid(self) -> list[ClientCertificate]:
        """The certificates with which the API can be used, by name and age."""
        now_s = self._host.wall_now_s()
        return sorted(
            (c for c in self._cluster.clients if c.not_after_s > now_s),
            key=lambda c: (c.name, c.created_at_s, c.serial),
        )

    def is_valid(self, serial: str) -> bool:
        """Whether a certificate that the CA signed is still accepted."""
        return any(c.serial == serial for c in self._cluster.clients)

    async def issue(self, name: str, csr_pem: bytes, valid_s: float) -> bytes:
        """A certificate for a key, in PEM.

        Raises:
            InvalidSpec: the name, the request or the time cannot be.
            DiskError: nothing is issued.
        """
        if not NAME_PATTERN.fullmatch(name):
            raise InvalidSpec("Name", f"{name!r} must be 1 to 63 letters, digits, '_', '.', '@' or '-'")
        if not 0 < valid_s <= VALID_S_MAX:
            most = duration_text(VALID_S_MAX)
            raise InvalidSpec(
                "ValidSeconds", f"{duration_text(valid_s)} is not right: more than 0 s and at most {most}"
            )
        if len(csr_pem) > CSR_BYTES_MAX:
            raise InvalidSpec("Request", f"it is larger than {CSR_BYTES_MAX} bytes")
        now_s = self._host.wall_now_s()
        cluster = self._cluster
        try:
            certificate_pem = self._host.pki.sign(
                (cluster.ca_certificate_pem, cluster.ca_key_pem),
                csr_pem,
                node_id=name,
                role=Role.CLIENT,
                organization=cluster.id,
                now_s=now_s,
                valid_s=valid_s,
            )
        except RemoteProtocolError as error:
            raise InvalidSpec("Request", str(error)) from error
        facts = self._host.pki.inspect(certificate_pem)
        made = ClientCertificate(name=name, serial=facts.serial, not_after_s=facts.not_after_s, created_at_s=now_s)

        def build(tx: Transaction) -> None:
            assert tx.cluster is not None
            kept = tuple(c for c in tx.cluster.clients if c.not_after_s > now_s)
            if len(kept) >= CLIENTS_MAX:
                raise InvalidSpec("Name", f"there are {CLIENTS_MAX} valid client certificates already: revoke some")
            tx.update(msgspec.structs.replace(tx.cluster, clients=(*kept, made)))

        await self._store.commit(build)
        log.info("client certificate issued", client=name, serial=made.serial)
        return certificate_pem

    async def revoke(self, name_or_serial: str) -> int:
        """Refuse from now on all certificates of a name, or the one of a serial; how many those are.

        Raises:
            NotFound: there is none.
            DiskError: they are still valid.
        """

        def build(tx: Transaction) -> int:
            assert tx.cluster is not None
            before = tx.cluster.clients
            kept = tuple(c for c in before if name_or_serial not in (c.name, c.serial))
            if len(kept) == len(before):
                raise NotFound("client certificate", name_or_serial)
            tx.update(msgspec.structs.replace(tx.cluster, clients=kept))
            return len(before) - len(kept)

        n_revoked = await self._store.commit(build)
        log.info("client certificates revoked", client=name_or_serial, n=n_revoked)
        return n_revoked


class ServerIdentity:
    """What the API shows to remote clients: a certificate with the names by which they may call this manager."""

    def __init__(self, host: Host, store: Store, config: ManagerConfig) -> None:
        self._host = host
        self._store = store
        self.names = server_names(config, host.hostname)
        self._credentials: Credentials | None = None
        self._until_s = 0.0

    def credentials(self) -> Credentials:
        """For `Net.listen`; renewed at half of its life."""
        now_s = self._host.wall_now_s()
        if self._credentials is None or now_s >= self._until_s:
            cluster = self._store.cluster
            assert cluster is not None
            csr_pem, key_pem = self._host.pki.new_request()
            certificate_pem = self._host.pki.sign(
                (cluster.ca_certificate_pem, cluster.ca_key_pem),
                csr_pem,
                node_id=cluster.manager_node_id,
                role=Role.MANAGER,
                organization=cluster.id,
                now_s=now_s,
                valid_s=cluster.certificate_valid_s,
                names=self.names,
            )
            self._credentials = Credentials(
                certificate_pem=certificate_pem, key_pem=key_pem, ca_certificate_pem=cluster.ca_certificate_pem
            )
            self._until_s = now_s + cluster.certificate_valid_s / 2
        return self._credentials


def server_names(config: ManagerConfig, hostname: str) -> tuple[str, ...]:
    """Names and addresses for the server's certificate: the configured ones, and what is known anyway."""
    names = [*config.api_names, hostname, "localhost", "127.0.0.1"]
    for address in (config.api_listen, config.token_listen, config.listen, config.advertise):
        where = parse_address(address) if address else None
        if isinstance(where, TcpAddress) and where.host not in ("0.0.0.0", "::"):
            names.append(where.host)
    return tuple(dict.fromkeys(names))


__all__ = ["ClientCertificates", "ServerIdentity", "server_names"]
