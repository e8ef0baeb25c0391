"""The cluster's certificates, on `cryptography`: ECDSA P-256, signed with SHA-256.

A node's certificate says what Swarm's do: CN = node id, OU = role, O = cluster id. It serves both ends of a connection. The
CA signs nodes only (path length 0), so a node's key can never sign another node.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime.host import PeerCertificate

AUTHORITY_VALID_DAYS = 20 * 365
# Clocks of hosts disagree: a fresh certificate must be good at once on a host that is behind.
BACKDATED_S = 3600.0
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
# 256 bits need 49.5 base36 digits.
DIGEST_DIGITS = 50


def base36(number: int, digits: int) -> str:
    """A number as so many base36 digits, zeros in front."""
    out = []
    for _ in range(digits):
        number, rest = divmod(number, 36)
        out.append(BASE36[rest])
    return "".join(reversed(out))


class RealPki:
    """`Pki` with real keys. It keeps no state; the random numbers are OpenSSL's own."""

    def new_authority(self, organization: str, now_s: float) -> tuple[bytes, bytes]:
        """See `Pki.new_authority`."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("beeyard-ca", organization=organization)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_utc(now_s - BACKDATED_S))
            .not_valid_after(_utc(now_s) + datetime.timedelta(days=AUTHORITY_VALID_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)

    def new_request(self) -> tuple[bytes, bytes]:
        """See `Pki.new_request`. Names in the request do not matter: the CA decides who the node is."""
        key = ec.generate_private_key(ec.SECP256R1())
        request = x509.CertificateSigningRequestBuilder().subject_name(_name("node")).sign(key, hashes.SHA256())
        return request.public_bytes(serialization.Encoding.PEM), _key_pem(key)

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
        public_key = _requested_key(csr_pem)
        ca_certificate = x509.load_pem_x509_certificate(authority[0])
        ca_key = serialization.load_pem_private_key(authority[1], password=None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(node_id, role, organization))
            .issuer_name(ca_certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_utc(now_s - BACKDATED_S))
            .not_valid_after(_utc(now_s + valid_s))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_purposes(role)), critical=False)
            .add_extension(x509.SubjectAlternativeName(_alternative_names(names or [node_id])), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def inspect(self, certificate_pem: bytes) -> PeerCertificate:
        """See `Pki.inspect`."""
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise RemoteProtocolError(f"not a certificate: {error}") from error
        return peer_certificate(certificate)

    def digest(self, ca_certificate_pem: bytes) -> str:
        """See `Pki.digest`."""
        try:
            certificate = x509.load_pem_x509_certificate(ca_certificate_pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise RemoteProtocolError(f"not a certificate: {error}") from error
        der = certificate.public_bytes(serialization.Encoding.DER)
        return base36(int.from_bytes(hashlib.sha256(der).digest(), "big"), DIGEST_DIGITS)


def peer_certificate(certificate: x509.Certificate) -> PeerCertificate:
    """What a node's certificate says; RemoteProtocolError when it is another kind, such as the CA's own."""
    try:
        node_id = _attribute(certificate, NameOID.COMMON_NAME)
        role = Role(_attribute(certificate, NameOID.ORGANIZATIONAL_UNIT_NAME))
    except ValueError as error:
        raise RemoteProtocolError(f"the certificate is not one of a node: {error}") from error
    return PeerCertificate(
        node_id=node_id,
        role=role,
        serial=f"{certificate.serial_number:x}",
        not_after_s=certificate.not_valid_after_utc.timestamp(),
    )


def _purposes(role: Role) -> list[x509.ObjectIdentifier]:
    """Both ends of a connection for a node; a client never answers."""
    server = [] if role is Role.CLIENT else [ExtendedKeyUsageOID.SERVER_AUTH]
    return [*server, ExtendedKeyUsageOID.CLIENT_AUTH]


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name.partition("%")[0])))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _attribute(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    """The only value of a name's attribute; ValueError when there is none or more than one."""
    values = certificate.subject.get_attributes_for_oid(oid)
    if len(values) != 1:
        raise ValueError(f"{len(values)} values for {oid.dotted_string} in its name")
    value = values[0].value
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _requested_key(csr_pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a valid request; the signature proves that the sender has the private one."""
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        valid = request.is_signature_valid
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RemoteProtocolError(f"not a certificate request: {error}") from error
    if not valid:
        raise RemoteProtocolError("the certificate request is not signed with its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise RemoteProtocolError("the key of the certificate request is not ECDSA P-256")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _utc(at_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC)


def _name(common_name: str, role: str = "", organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if role:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, str(role)))
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


__all__ = ["RealPki", "base36", "peer_certificate"]
