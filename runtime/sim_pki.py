"""Certificates for the simulator: plain text with the same facts, and the same checks as TLS 1.3 makes.

They are as good as the world's honesty: nobody in it forges one. Keys and serials come from the host's own generator, so a
seed gives the same ones each time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime.host import Credentials, PeerCertificate
from beeyard.runtime.pki import BACKDATED_S, DIGEST_DIGITS, base36

AUTHORITY_VALID_S = 20 * 365 * 86400.0


class SimPki:
    """`Pki` without cryptography."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def new_authority(self, organization: str, now_s: float) -> tuple[bytes, bytes]:
        """See `Pki.new_authority`."""
        secret = self._number()
        certificate = _written(
            "CERTIFICATE",
            kind="authority",
            organization=organization,
            key=_public(secret),
            not_after_s=repr(now_s + AUTHORITY_VALID_S),
        )
        return certificate, _written("PRIVATE KEY", secret=secret)

    def new_request(self) -> tuple[bytes, bytes]:
        """See `Pki.new_request`."""
        secret = self._number()
        return _written("CERTIFICATE REQUEST", key=_public(secret)), _written("PRIVATE KEY", secret=secret)

    def sign(
        self,
        authority: tuple[bytes, bytes],
        csr_pem: bytes,
        *,
        node_id: str,
        role: Role,
        organization: str,
        now_s: float,
        valid_s: float,
        names: Sequence[str] = (),
    ) -> bytes:
        """See `Pki.sign`."""
        request = _read("CERTIFICATE REQUEST", csr_pem)
        ca = _read("CERTIFICATE", authority[0])
        assert ca["key"] == _public(_read("PRIVATE KEY", authority[1])["secret"]), "not the key of this authority"
        return _written(
            "CERTIFICATE",
            kind="node",
            node_id=node_id,
            role=str(role),
            organization=organization,
            serial=self._number(),
            key=request["key"],
            issuer=self.digest(authority[0]),
            not_before_s=repr(now_s - BACKDATED_S),
            not_after_s=repr(now_s + valid_s),
            names=" ".join(names),
        )

    def inspect(self, certificate_pem: bytes) -> PeerCertificate:
        """See `Pki.inspect`."""
        return inspect(certificate_pem)

    def digest(self, ca_certificate_pem: bytes) -> str:
        """See `Pki.digest`."""
        return digest(ca_certificate_pem)

    def _number(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"


def inspect(certificate_pem: bytes) -> PeerCertificate:
    """What a node's certificate says; RemoteProtocolError when it is none."""
    facts = _read("CERTIFICATE", certificate_pem)
    if facts["kind"] != "node":
        raise RemoteProtocolError("the certificate is not one of a node")
    return PeerCertificate(
        node_id=facts["node_id"],
        role=Role(facts["role"]),
        serial=facts["serial"],
        not_after_s=float(facts["not_after_s"]),
    )


def digest(ca_certificate_pem: bytes) -> str:
    """Of a CA's certificate, as in a join token."""
    _read("CERTIFICATE", ca_certificate_pem)
    return base36(int.from_bytes(hashlib.sha256(ca_certificate_pem).digest(), "big"), DIGEST_DIGITS)


def refusal(certificate_pem: bytes, ca_certificate_pem: bytes, now_s: float) -> str:
    """Why one who trusts this CA refuses a certificate now; "" when it is good."""
    try:
        facts = _read("CERTIFICATE", certificate_pem)
        if facts.get("issuer") != digest(ca_certificate_pem):
            return "of another CA"
    except RemoteProtocolError as error:
        return str(error)
    if float(facts["not_after_s"]) < now_s:
        return "expired"
    if float(facts["not_before_s"]) > now_s:
        return "not valid yet"
    return ""


def usable(credentials: Credentials) -> bool:
    """Whether the key belongs to the certificate."""
    facts = _read("CERTIFICATE", credentials.certificate_pem)
    return facts["key"] == _public(_read("PRIVATE KEY", credentials.key_pem)["secret"])


def _public(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def _written(label: str, **facts: str) -> bytes:
    lines = [f"-----BEGIN SIMULATED {label}-----", *(f"{name}={value}" for name, value in facts.items())]
    return "\n".join([*lines, f"-----END SIMULATED {label}-----", ""]).encode()


def _read(label: str, pem: bytes) -> dict[str, str]:
    lines = pem.decode("utf-8", "replace").splitlines()
    if len(lines) < 3 or lines[0] != f"-----BEGIN SIMULATED {label}-----" or not lines[-1].startswith("-----END"):
        raise RemoteProtocolError(f"not a {label.lower()}")
    return dict(line.split("=", 1) for line in lines[1:-1])


__all__ = ["SimPki", "digest", "inspect", "refusal", "usable"]
