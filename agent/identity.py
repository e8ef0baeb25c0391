"""Who this node is: its certificate, how it gets one, and how it keeps one.

Theory of operation
-------------------
A join token is `SWMTKN-1-DIGEST-SECRET`: 50 base36 digits of the CA certificate's SHA-256 and 25 of a secret. The agent
trusts nobody until a manager has shown a CA certificate with that digest; it then connects again, trusting that CA alone,
and only then shows the secret. So a stranger in the middle learns nothing and cannot pose as the cluster.

Key, certificate and CA are one file, replaced as a whole: after a crash there is the old identity or the new one, never a
key that does not fit. Nothing is written before a manager has let the node in, so a refused join leaves nothing behind.

A certificate is renewed in a session, at a point drawn at random between 50 and 80 % of its time, so that nodes that joined
together do not renew together. The session goes on under the old one; the new one counts from the next session.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError, InvalidSpec, PeerError, PeerRefused, RemoteProtocolError
from beeyard.core.wire import (
    CaReply,
    CaRequest,
    FromManager,
    IdentityReply,
    JoinRequest,
    Refused,
    RenewRequest,
    from_manager_decoder,
)
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Credentials, Host

DIGEST_DIGITS = 50
SECRET_DIGITS = 25
BASE36 = frozenset("0123456789abcdefghijklmnopqrstuvwxyz")
# One question and its answer; a manager under a storm of joins needs seconds, not tens of them.
REPLY_TIMEOUT_S = 10.0
RENEW_FROM, RENEW_TO = 0.5, 0.8

log = structlog.get_logger(__name__)

A = TypeVar("A")


class Stranger(PeerRefused):
    """Whoever answered has not shown that it is a manager of this cluster."""


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """A join token in its parts."""

    text: str
    ca_digest: str


def parse_token(text: str) -> JoinToken:
    """Read a join token.

    Raises:
        InvalidSpec: it does not have the form of one.
    """
    text = text.strip()
    parts = text.split("-")
    if len(parts) != 4 or parts[:2] != ["SWMTKN", "1"]:
        raise InvalidSpec("join token", "it must look like SWMTKN-1-DIGEST-SECRET")
    for name, digits, n_digits in (("digest", parts[2], DIGEST_DIGITS), ("secret", parts[3], SECRET_DIGITS)):
        if len(digits) != n_digits or not BASE36.issuperset(digits):
            raise InvalidSpec("join token", f"its {name} must be {n_digits} digits of 0-9 and a-z")
    return JoinToken(text=text, ca_digest=parts[2])


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A node's place in a cluster, as it is kept on disk."""

    node_id: str
    certificate_pem: bytes
    key_pem: bytes
    ca_certificate_pem: bytes
    obtained_at_s: float  # wall clock
    not_after_s: float

    @property
    def credentials(self) -> Credentials:
        """For `Net.dial`."""
        return Credentials(
            certificate_pem=self.certificate_pem, key_pem=self.key_pem, ca_certificate_pem=self.ca_certificate_pem
        )


class IdentityKeeper:
    """Loads, obtains, renews and forgets this node's identity."""

    def __init__(self, host: Host, state_dir: str) -> None:
        self._host = host
        self._path = f"{state_dir}/identity"
        self._identity: Identity | None = None
        self._renewal_key_pem = b""
        self._renew_at = 0.0  # as a fraction of the certificate's time

    @property
    def current(self) -> Identity:
        """The identity; only to be asked for once there is one."""
        assert self._identity is not None
        return self._identity

    @property
    def node_id(self) -> str:
        """This node's id, "" as long as it has none."""
        return self._identity.node_id if self._identity is not None else ""

    @property
    def ca_digest(self) -> str:
        """Digest of the CA of the cluster that this node belongs to, as in its join tokens."""
        return self._host.pki.digest(self.current.ca_certificate_pem)

    async def load(self, token: JoinToken | None) -> bool:
        """Read the identity from disk. False when there is none that can still be used.

        An expired one is of no use to connect with, but its node id is asked for again when joining. A damaged one is an
        error also when there is a token: joining as somebody else would stop the tasks that run here, which the cluster
        still counts on under the node's own name.

        Raises:
            InvalidSpec: the token is one of another cluster than the one this node belongs to.
            DiskError: what is on the disk is no identity.
        """
        data = await self._host.files.read(self._path)
        if data is None:
            return False
        identity, ca_digest = self._read(data)
        if token is not None and ca_digest != token.ca_digest:
            reason = (
                f"it is of another cluster than the one this node belongs to; to leave that one, remove {self._path}"
            )
            raise InvalidSpec("join token", reason)
        self._set(identity)
        if identity.not_after_s > self._host.wall_now_s():
            return True
        log.warning("the certificate of this node has expired", node=identity.node_id)
        return False

    def _read(self, data: bytes) -> tuple[Identity, str]:
        """The identity in a file, and the digest of its CA."""
        try:
            identity = msgspec.msgpack.decode(data, type=Identity)
            certificate = self._host.pki.inspect(identity.certificate_pem)
            ca_digest = self._host.pki.digest(identity.ca_certificate_pem)
            if certificate.node_id != identity.node_id:
                raise RemoteProtocolError("its certificate is another node's")
        except (msgspec.MsgspecError, RemoteProtocolError) as error:
            log.error("the identity on disk is damaged", path=self._path, reason=str(error))
            reason = "the identity in it is damaged: restore it, or remove it to join as a new node"
            raise DiskError("use", self._path, reason) from error
        return identity, ca_digest

    async def join(self, address: str, token: JoinToken, hostname: str) -> None:
        """Ask one manager to let this node in, and keep what it gives.

        Raises:
            Stranger: it is not of the token's cluster.
            PeerRefused: the manager said no for good.
            PeerError: it cannot be reached, or said to try later.
        """
        try:
            ca_certificate_pem = (await self._ask(address, Credentials(), CaRequest(), CaReply)).ca_certificate_pem
        except PeerRefused as error:
            raise Stranger(str(error)) from error
        if self._host.pki.digest(ca_certificate_pem) != token.ca_digest:
            raise Stranger(f"the manager at {address} is not of the cluster that the join token is for")
        csr_pem, key_pem = self._host.pki.new_request()
        node_id = self._identity.node_id if self._identity is not None else ""
        request = JoinRequest(token=token.text, csr_pem=csr_pem, hostname=hostname, node_id=node_id)
        reply = await self._ask(address, Credentials(ca_certificate_pem=ca_certificate_pem), request, IdentityReply)
        await self._take(reply, key_pem)
        log.info("joined the cluster", node=reply.node_id, manager=address)

    def renewal_due_in_s(self) -> float:
        """Seconds by the wall clock until the certificate should be renewed; 0 or less: now."""
        identity = self.current
        valid_s = identity.not_after_s - identity.obtained_at_s
        return identity.obtained_at_s + self._renew_at * valid_s - self._host.wall_now_s()

    def renewal(self) -> RenewRequest:
        """The request to send in a session; its answer goes to `renewed`."""
        csr_pem, self._renewal_key_pem = self._host.pki.new_request()
        return RenewRequest(csr_pem=csr_pem)

    async def renewed(self, reply: IdentityReply) -> None:
        """Take the fresh certificate.

        Raises:
            RemoteProtocolError: it was not asked for, or is somebody else's.
        """
        if not self._renewal_key_pem or reply.node_id != self.current.node_id:
            raise RemoteProtocolError("the manager sent a certificate that this node did not ask for")
        key_pem, self._renewal_key_pem = self._renewal_key_pem, b""
        await self._take(reply, key_pem)
        log.info("the certificate was renewed", node=reply.node_id, not_after_s=self.current.not_after_s)

    async def forget(self) -> None:
        """This node is no member any more. Idempotent: yes."""
        self._identity = None
        await self._host.files.remove(self._path)

    async def _take(self, reply: IdentityReply, key_pem: bytes) -> None:
        certificate = self._host.pki.inspect(reply.certificate_pem)
        if certificate.node_id != reply.node_id:
            raise RemoteProtocolError("the manager sent a certificate of another node")
        identity = Identity(
            node_id=reply.node_id,
            certificate_pem=reply.certificate_pem,
            key_pem=key_pem,
            ca_certificate_pem=reply.ca_certificate_pem,
            obtained_at_s=self._host.wall_now_s(),
            not_after_s=certificate.not_after_s,
        )
        await self._host.files.replace(self._path, msgspec.msgpack.encode(identity))
        self._set(identity)

    def _set(self, identity: Identity) -> None:
        self._identity = identity
        self._renew_at = self._host.rng.uniform(RENEW_FROM, RENEW_TO)

    async def _ask(self, address: str, credentials: Credentials, question: object, answer: type[A]) -> A:
        """One question on a connection of its own."""
        connection = await self._host.net.dial(address, credentials)
        try:
            frames: FrameStream[FromManager] = FrameStream(connection.stream, from_manager_decoder)
            with trio.fail_after(REPLY_TIMEOUT_S):
                await frames.send([question])
                reply = await frames.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            raise PeerError(f"the manager at {address} hung up or did not answer") from error
        finally:
            await trio.aclose_forcefully(connection.stream)
        if isinstance(reply, Refused):
            raise (PeerError if reply.retry else PeerRefused)(reply.reason)
        if not isinstance(reply, answer):
            raise RemoteProtocolError(f"the manager at {address} did not answer a {type(question).__name__}")
        return reply


__all__ = ["Identity", "IdentityKeeper", "JoinToken", "Stranger", "parse_token"]
