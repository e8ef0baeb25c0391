"""Keys and certificates."""

from __future__ import annotations

import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.states import Role
from beeyard.runtime.pki import RealPki, base36
from tests.support.conformance import DAY_S, Identities, check_pki

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])


def test_real_pki_conforms() -> None:
    """`cryptography` keeps what `Pki` promises."""
    check_pki(RealPki(), time.time())


def test_certificate_carries_node_role_and_cluster_as_swarm_does() -> None:
    """CN, OU and O, back-dated by an hour, and never good for signing others."""
    now_s = 1_700_000_000.0
    pem = Identities.of(RealPki(), now_s).node("n1", Role.MANAGER).certificate_pem
    certificate = x509.load_pem_x509_certificate(pem)
    assert certificate.subject.rfc4514_string() == "O=cluster1,OU=manager,CN=n1"
    assert certificate.not_valid_before_utc.timestamp() == now_s - 3600
    assert certificate.not_valid_after_utc.timestamp() == now_s + 90 * DAY_S
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


def test_a_servers_certificate_has_its_names_and_a_clients_cannot_be_a_servers() -> None:
    """docker compares what it dials with the names, an address with the addresses; a client's key answers nobody."""
    pki = RealPki()
    csr, _ = pki.new_request()
    authority = pki.new_authority("c", 0)

    def signed(role: Role, *names: str) -> x509.Certificate:
        pem = pki.sign(authority, csr, node_id="n", role=role, organization="c", now_s=0, valid_s=DAY_S, names=names)
        return x509.load_pem_x509_certificate(pem)

    names = signed(Role.MANAGER, "m.example", "10.0.0.7", "fd00::7").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["m.example"]
    assert [str(address) for address in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "fd00::7"]
    usages = signed(Role.CLIENT).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())])
def test_request_with_another_kind_of_key_is_refused(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    """The CA signs one kind of key, so no weak one gets in."""
    csr = x509.CertificateSigningRequestBuilder().subject_name(NAME).sign(key, hashes.SHA256())
    pki = RealPki()
    with pytest.raises(RemoteProtocolError, match="P-256"):
        pki.sign(
            pki.new_authority("c", 0),
            csr.public_bytes(serialization.Encoding.PEM),
            node_id="n",
            role=Role.WORKER,
            organization="c",
            now_s=0,
            valid_s=DAY_S,
        )


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (0, 3, "000"),
        (35, 1, "z"),
        (36, 2, "10"),
        (2**256 - 1, 50, "6dp5qcb22im238nr3wvp0ic7q99w035jmy2iw7i6n43d37jtof"),
    ],
)
def test_base36_is_padded_and_positional(number: int, digits: int, text: str) -> None:
    """Digits are 0-9a-z, most significant first."""
    assert base36(number, digits) == text
    assert int(text, 36) == number
