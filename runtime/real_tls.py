"""TLS 1.3 on trio: contexts from certificates in memory, and handshakes that say why they failed.

The standard library loads a key only from a file, so certificate and key pass through an anonymous memory file; no key ever
lies on a disk for it. In TLS 1.3 a client is done before the server has looked at its certificate: a refusal reaches it
with its first read, which is why `TlsStream` turns the alert into a sentence.
"""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
import sys
from typing import Any, cast

import trio
from cryptography import x509

from beeyard.core.errors import PeerError, RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime.host import Credentials, PeerCertificate
from beeyard.runtime.pki import peer_certificate
from beeyard.runtime.real_tls_stream import TlsStream


class ExplainingStream(TlsStream):
    """A `TlsStream` whose BrokenResourceError names the other side's reason when it gave one."""

    def __init__(self, transport: trio.SocketStream, tap: _Tap, remote: str) -> None:
        assert tap.tls is not None, "the handshake is over"
        super().__init__(transport, tap.tls, tap.incoming, tap.outgoing)
        self._remote = remote

    def _broken(self, reason: str) -> trio.BrokenResourceError:
        error = trio.BrokenResourceError(reason)
        error.__cause__ = sys.exception()
        return trio.BrokenResourceError(f"connection to {self._remote} is broken: {failure_reason(error)}")


async def handshake_as_server(
    transport: trio.SocketStream, credentials: Credentials, remote: str, through: trio.abc.Stream | None = None
) -> TlsStream:
    """Let a client in, with a certificate of the CA or with none.

    Args:
        through: the transport as it is to be used during the handshake; None: just so.

    Raises:
        trio.BrokenResourceError: it was refused, and told so, or is gone; `failure_reason` tells.
    """
    return await _handshake(transport, credentials, remote, through or transport, server=True)


async def handshake_as_client(transport: trio.SocketStream, credentials: Credentials, remote: str) -> TlsStream:
    """Greet a server; raises as `handshake_as_server`."""
    return await _handshake(transport, credentials, remote, transport, server=False)


class _Tap:
    """Stands in for a context to keep hold of one connection's state.

    trio drops OpenSSL's last words when a handshake fails, and they are what tells the other side why. After the handshake
    the state goes to our own stream.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.tls: ssl.SSLObject | None = None
        self.incoming = self.outgoing = ssl.MemoryBIO()

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> ssl.SSLObject:
        """As the context's own."""
        self.incoming, self.outgoing = incoming, outgoing
        self.tls = self._context.wrap_bio(incoming, outgoing, **options)
        return self.tls


async def _handshake(
    transport: trio.SocketStream, credentials: Credentials, remote: str, through: trio.abc.Stream, *, server: bool
) -> TlsStream:
    try:
        tap = _Tap(_context(credentials, server))
    except (ssl.SSLError, ValueError) as error:
        raise trio.BrokenResourceError(f"our own certificate or key cannot be used: {error}") from None
    stream = trio.SSLStream(through, cast("ssl.SSLContext", tap), server_side=server, https_compatible=True)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await through.send_all(tap.outgoing.read())
        raise
    return ExplainingStream(transport, tap, remote)


def peer_of(stream: TlsStream) -> PeerCertificate | None:
    """Who is at the other end, or None when it showed no certificate or nobody checked it.

    Raises:
        RemoteProtocolError: a certificate of the CA that is not a node's, such as the CA's own.
    """
    der = stream.tls.getpeercert(binary_form=True)
    # The decoded form is empty exactly when the certificate was not verified.
    if not der or not stream.tls.getpeercert():
        return None
    return peer_certificate(x509.load_der_x509_certificate(der))


def require_manager(peer: PeerCertificate | None, credentials: Credentials) -> None:
    """Only a manager may answer where we dial, else a worker's key could be used to pose as one."""
    if credentials.ca_certificate_pem and (peer is None or peer.role != Role.MANAGER):
        raise PeerError("who answers there is not a manager")


def failure_reason(error: BaseException) -> str:
    """Why a handshake or a connection failed, for a person."""
    if isinstance(error, RemoteProtocolError):
        return str(error)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__
    if cause is None:
        return str(error) or "the other side hung up"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate_reason(cause)
    return _ALERTS.get(cause.reason or "", f"it does not speak TLS 1.3 as we do ({cause.reason or cause})")


# What the other side's refusals are called in OpenSSL, and in words.
_ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "it says that our certificate is of another CA",
    "TLSV1_ALERT_DECRYPT_ERROR": "it says that our certificate is of another CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it says that our certificate is not valid",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept our certificate for this purpose",
}


def _certificate_reason(error: ssl.SSLCertVerificationError) -> str:
    message = error.verify_message
    if "expired" in message:
        return "its certificate has expired"
    if "not yet valid" in message:
        return "its certificate is not valid yet: one of the two clocks is wrong"
    return f"its certificate is not one of this cluster's CA ({message})"


# A manager has one set of credentials at a time and an agent one more while it joins; old ones die with the cache.
@functools.lru_cache(maxsize=8)
def _context(credentials: Credentials, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # names are node ids, not addresses; `require_manager` checks the role
    if server:
        context.num_tickets = 0  # no resumption: each connection is judged by the trust of its own moment
    if credentials.ca_certificate_pem:
        context.load_verify_locations(cadata=credentials.ca_certificate_pem.decode("ascii"))
        context.verify_mode = ssl.CERT_OPTIONAL if server else ssl.CERT_REQUIRED
    else:
        context.verify_mode = ssl.CERT_NONE
    if credentials.certificate_pem:
        _load_chain(context, credentials)
    return context


def _load_chain(context: ssl.SSLContext, credentials: Credentials) -> None:
    fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(fd, credentials.certificate_pem + b"\n" + credentials.key_pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


__all__ = [
    "TlsStream",
    "failure_reason",
    "handshake_as_client",
    "handshake_as_server",
    "peer_of",
    "require_manager",
]
