"""The simulator's TLS handshake: three messages in the open, and the same refusals as TLS 1.3's.

Each message is a tag, a length and a body. The client sends its certificate, the server its own, the client says whether it
accepts; then the server judges the client. As in TLS 1.3 the client is done before that, so it learns of a refusal with its
next call.
"""

from __future__ import annotations

from beeyard.core.errors import PeerError, RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime import sim_pki
from beeyard.runtime.host import Credentials, PeerCertificate
from beeyard.runtime.sim_stream import Endpoint

_HELLO, _ACCEPT, _ALERT = b"\x16", b"\x14", b"\x15"
_BODY_BYTES_MAX = 65536

# What the two sides call a refusal: about the other's certificate, and about one's own.
_SEEN = {
    "expired": "its certificate has expired",
    "not valid yet": "its certificate is not valid yet: one of the two clocks is wrong",
    "of another CA": "its certificate is not one of this cluster's CA (simulated)",
}
_TOLD = {
    "expired": "it says that our certificate has expired",
    "of another CA": "it says that our certificate is of another CA",
}


async def greet_server(end: Endpoint, credentials: Credentials, now_s: float) -> PeerCertificate | None:
    """The client's part.

    Raises:
        PeerError: the server's certificate is not acceptable, or it speaks no TLS.
        trio.BrokenResourceError: the connection is gone.
    """
    if credentials.certificate_pem and not sim_pki.usable(credentials):
        raise PeerError("our own certificate or key cannot be used")
    await end.send_all(_message(_HELLO, credentials.certificate_pem))
    tag, body = await _receive(end)
    if tag == _ALERT:
        raise PeerError(body.decode())
    if tag != _HELLO:
        raise PeerError("it does not speak TLS 1.3 as we do")
    if not credentials.ca_certificate_pem:
        await end.send_all(_message(_ACCEPT))
        return None
    reason = sim_pki.refusal(body, credentials.ca_certificate_pem, now_s)
    if reason:
        await end.send_all(_message(_ALERT, _TOLD.get(reason, "it does not accept our certificate").encode()))
        raise PeerError(_SEEN.get(reason, reason))
    await end.send_all(_message(_ACCEPT))
    peer = sim_pki.inspect(body)
    if peer.role != Role.MANAGER:
        raise PeerError("who answers there is not a manager")
    return peer


async def greet_client(end: Endpoint, credentials: Credentials, now_s: float) -> PeerCertificate | None:
    """The server's part.

    Raises:
        HandshakeRefused: with the sentence for the log, and the one that the client gets to see.
        trio.BrokenResourceError: the connection is gone.
    """
    tag, certificate = await _receive(end)
    if tag != _HELLO:
        raise HandshakeRefused("it does not speak TLS 1.3 as we do", "")
    if not credentials.certificate_pem or not sim_pki.usable(credentials):
        await end.send_all(_message(_ALERT, b"it has no certificate"))
        raise HandshakeRefused("our own certificate or key cannot be used", "")
    await end.send_all(_message(_HELLO, credentials.certificate_pem))
    tag, body = await _receive(end)
    if tag != _ACCEPT:
        raise HandshakeRefused(body.decode("utf-8", "replace"), "")
    if not certificate or not credentials.ca_certificate_pem:
        return None
    reason = sim_pki.refusal(certificate, credentials.ca_certificate_pem, now_s)
    if reason:
        raise HandshakeRefused(_SEEN.get(reason, reason), _TOLD.get(reason, "it does not accept our certificate"))
    try:
        return sim_pki.inspect(certificate)
    except RemoteProtocolError as error:
        raise HandshakeRefused(str(error), "it does not accept our certificate") from error


class HandshakeRefused(Exception):
    """A client is not let in: `seen` for our log, `told` for the client."""

    def __init__(self, seen: str, told: str) -> None:
        super().__init__(seen, told)
        self.seen = seen
        self.told = told

    def __str__(self) -> str:
        return self.seen


def _message(tag: bytes, body: bytes = b"") -> bytes:
    return tag + len(body).to_bytes(4, "big") + body


async def _receive(end: Endpoint) -> tuple[bytes, bytes]:
    """One message and not a byte more; tag b"" for whatever is none."""
    head = await _exactly(end, 1)
    if head not in (_HELLO, _ACCEPT, _ALERT):
        return b"", b""
    size = int.from_bytes(await _exactly(end, 4), "big")
    if size > _BODY_BYTES_MAX:
        return b"", b""
    return head, await _exactly(end, size)


async def _exactly(end: Endpoint, n_bytes: int) -> bytes:
    """So many bytes, or fewer when the other side ends before."""
    got = b""
    while len(got) < n_bytes:
        part = await end.receive_some(n_bytes - len(got))
        if not part:
            break
        got += part
    return got


__all__ = ["HandshakeRefused", "greet_client", "greet_server"]
