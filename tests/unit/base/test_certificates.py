import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from ganeti.base import certificates as ca
from ganeti.base import tls
from ganeti.base.certificate_facts import node_identity, validity
from ganeti.base.errors import InputError

NOW = 1_790_000_000.0
CLUSTER = "11111111-1111-4111-8111-111111111111"
NODE = "22222222-2222-4222-8222-222222222222"


@pytest.fixture(scope="module")
def authority() -> tuple[bytes, bytes]:
    key = ca.new_key()
    return ca.new_authority(key, "cluster.example", CLUSTER, NOW), key


def node_certificate(
    authority: tuple[bytes, bytes], key: bytes, name: str = "node1.example"
) -> bytes:
    request = ca.signing_request(key, name)
    return ca.sign_node(*authority, request, node_uuid=NODE, node_name=name, now=NOW)


def test_a_node_certificate_names_the_node_and_is_for_its_key(
    authority: tuple[bytes, bytes],
) -> None:
    key = ca.new_key()
    certificate = node_certificate(authority, key)
    assert node_identity(certificate) == (NODE, "node1.example")
    assert ca.is_pair(certificate, key)
    assert not ca.is_pair(certificate, ca.new_key())
    assert ca.is_signed_by(certificate, authority[0])


@pytest.mark.requirement("G27")
def test_a_certificate_is_valid_a_day_before_it_was_made_and_for_five_years(
    authority: tuple[bytes, bytes],
) -> None:
    certificate = node_certificate(authority, ca.new_key())
    begins = x509.load_pem_x509_certificate(certificate).not_valid_before_utc
    assert begins == dt.datetime.fromtimestamp(NOW - ca.DAY_S, dt.UTC)
    assert validity(certificate)[1] == NOW + 5 * 365 * ca.DAY_S
    assert validity(authority[0])[1] == NOW + 10 * 365 * ca.DAY_S


def test_a_node_certificate_serves_both_ends_and_signs_nothing(
    authority: tuple[bytes, bytes],
) -> None:
    extensions = x509.load_pem_x509_certificate(
        node_certificate(authority, ca.new_key())
    ).extensions
    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


@pytest.mark.requirement("A62", "G22")
def test_a_certificate_for_one_end_of_a_migration_is_for_nothing_else(
    authority: tuple[bytes, bytes],
) -> None:
    key = ca.new_key()
    made = ca.for_migration(key, "source", NODE, NOW)
    assert ca.is_pair(made, key)
    assert ca.is_for_migration(made, "source", NODE)
    assert not ca.is_for_migration(made, "target", NODE)
    assert not ca.is_for_migration(made, "source", "another")
    assert not ca.is_for_migration(node_certificate(authority, key), "source", NODE)
    assert not ca.is_signed_by(made, authority[0])
    assert validity(made)[1] - NOW <= ca.DAY_S
    with pytest.raises(InputError):
        ca.is_for_migration(b"no certificate", "source", NODE)


@pytest.mark.requirement("A24")
def test_authority_of_the_same_name_is_not_accepted(
    authority: tuple[bytes, bytes],
) -> None:
    key = ca.new_key()
    impostor = ca.new_authority(key, "cluster.example", CLUSTER, NOW), key
    assert not ca.is_signed_by(node_certificate(impostor, ca.new_key()), authority[0])


def test_the_names_in_a_certificate_are_the_masters_choice(authority: tuple[bytes, bytes]) -> None:
    request = ca.signing_request(ca.new_key(), "evil.example")
    certificate = ca.sign_node(
        *authority, request, node_uuid=NODE, node_name="node1.example", now=NOW
    )
    assert node_identity(certificate) == (NODE, "node1.example")


def test_a_long_node_name_is_whole_in_the_certificate(authority: tuple[bytes, bytes]) -> None:
    name = ".".join(["a" * 60] * 4)
    assert node_identity(node_certificate(authority, ca.new_key(), name)) == (NODE, name)


def _rsa_request() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _changed(pem: bytes) -> bytes:
    lines = pem.splitlines()
    lines[-2] = lines[-2][:4] + (b"A" if lines[-2][4:5] != b"A" else b"B") + lines[-2][5:]
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize(
    ("request_of", "why"),
    [
        (lambda: b"", "cannot be read"),
        (lambda: b"garbage" * 100, "cannot be read"),
        (lambda: b"x" * (ca.PEM_LIMIT + 1), "too large"),
        (_rsa_request, "elliptic"),
        (lambda: _changed(ca.signing_request(ca.new_key(), "n")), "prove|read"),
    ],
    ids=["empty", "garbage", "huge", "rsa", "signature changed"],
)
def test_a_request_that_is_none_is_refused(
    request_of: object, why: str, authority: tuple[bytes, bytes]
) -> None:
    assert callable(request_of)
    with pytest.raises(InputError, match=why):
        ca.sign_node(*authority, request_of(), node_uuid=NODE, node_name="n.example", now=NOW)


def test_the_fingerprint_is_that_of_the_der_form_in_lower_case(
    authority: tuple[bytes, bytes],
) -> None:
    certificate = authority[0]
    found = tls.fingerprint(certificate)
    known = x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex()
    assert found == known
    assert tls.is_fingerprint(found)


@pytest.mark.parametrize("text", ["", "ab", "A" * 64, "g" * 64, "a" * 63, "a" * 65])
def test_other_text_is_no_fingerprint(text: str) -> None:
    assert not tls.is_fingerprint(text)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\n"])
def test_the_fingerprint_of_garbage_is_an_error(data: bytes) -> None:
    with pytest.raises(InputError):
        tls.fingerprint(data)
    with pytest.raises(InputError):
        validity(data)[1]
    with pytest.raises(InputError):
        ca.is_pair(data, data)


def test_an_authority_is_no_node(authority: tuple[bytes, bytes]) -> None:
    with pytest.raises(InputError, match="does not name a node"):
        node_identity(authority[0])
