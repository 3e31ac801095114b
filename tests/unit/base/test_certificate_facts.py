"""The few fields that are read from the DER form, against the library that creates certificates."""

import base64
import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.certificate_facts import node_identity, validity
from ganeti.base.errors import InputError

KEY = ec.generate_private_key(ec.SECP256R1())
UUID = "22222222-2222-4222-8222-222222222222"
BEGIN = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def certificate(
    begin: dt.datetime,
    end: dt.datetime,
    names: list[x509.GeneralName] | None = None,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = KEY,
) -> bytes:
    subject = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.serial_number(7).public_key(key.public_key())
    builder = builder.not_valid_before(begin).not_valid_after(end)
    usage = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(usage, critical=True)
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


DER = ssl.PEM_cert_to_DER_cert(certificate(BEGIN, BEGIN, []).decode())
seconds = st.integers(-631_000_000, 5_680_000_000).map(
    lambda seconds: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
)


@given(st.tuples(seconds, seconds))
def test_validity_is_that_of_the_library(ends: tuple[dt.datetime, dt.datetime]) -> None:
    begin, end = sorted(ends)
    assert validity(certificate(begin, end)) == (begin.timestamp(), end.timestamp())


def test_validity_of_a_long_certificate_is_read() -> None:
    key = rsa.generate_private_key(65537, 2048)
    names: list[x509.GeneralName] = [x509.DNSName(f"{n}.example") for n in range(5000)]
    assert validity(certificate(BEGIN, BEGIN, names, key))[0] == BEGIN.timestamp()


def test_first_certificate_of_a_file_counts_whatever_stands_around_it() -> None:
    first, second = (
        certificate(BEGIN, BEGIN),
        certificate(BEGIN + dt.timedelta(1), BEGIN + dt.timedelta(2)),
    )
    assert validity(b"subject=x\n" + first + second + b"rest")[0] == BEGIN.timestamp()


def test_identity_of_a_node_is_its_uuid_and_name() -> None:
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address("192.0.2.1")),
        x509.DNSName("node1.example"),
        x509.UniformResourceIdentifier(f"urn:uuid:{UUID}"),
    ]
    assert node_identity(certificate(BEGIN, BEGIN, names)) == (UUID, "node1.example")


@pytest.mark.parametrize(
    "names",
    [
        None,
        [],
        [x509.DNSName("node1.example")],
        [x509.UniformResourceIdentifier(f"urn:uuid:{UUID}")],
        [x509.DNSName("a.example"), x509.UniformResourceIdentifier("https://a.example")],
        [x509.DNSName("a"), x509.DNSName("b"), x509.UniformResourceIdentifier(f"urn:uuid:{UUID}")],
    ],
    ids=["no names", "empty", "no UUID", "no name", "other URI", "two names"],
)
def test_certificate_of_another_kind_names_no_node(names: list[x509.GeneralName] | None) -> None:
    with pytest.raises(InputError, match="does not name a node"):
        node_identity(certificate(BEGIN, BEGIN, names))


@given(st.data())
def test_damaged_certificate_is_refused_or_read_but_never_crashes(data: st.DataObject) -> None:
    der = bytearray(DER)
    for _ in range(data.draw(st.integers(0, 3))):
        der[data.draw(st.integers(0, len(DER) - 1))] = data.draw(st.integers(0, 255))
    cut = der[: data.draw(st.integers(0, len(DER)))]
    pem = f"{ssl.PEM_HEADER}\n{base64.b64encode(cut).decode()}\n{ssl.PEM_FOOTER}\n".encode()
    for read in (validity, node_identity):
        try:
            read(pem)
        except InputError as err:
            assert "certificate" in err.message  # noqa: PT017 - both outcomes are right
