"""The cluster's authority and the nodes' certificates.

A node's key never leaves the node: the authority signs a request. A caller is authorised by its
certificate's fingerprint, not by its names (`tls.py`). Keys and certificates are PEM bytes; times
are seconds since the epoch.
"""

import datetime as dt
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ganeti.base.certificate_facts import validity
from ganeti.base.deferred import Deferred
from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import oid
else:
    x509, oid = Deferred("cryptography.x509"), Deferred("cryptography.x509.oid")
    exceptions = Deferred("cryptography.exceptions")
    hashes = Deferred("cryptography.hazmat.primitives.hashes")
    serialization = Deferred("cryptography.hazmat.primitives.serialization")
    ec = Deferred("cryptography.hazmat.primitives.asymmetric.ec")

DAY_S = 24 * 3600.0
NODE_LIFETIME_S = 5 * 365 * DAY_S
AUTHORITY_LIFETIME_S = 10 * 365 * DAY_S
BACKDATED_S = DAY_S
"""Time by which certificates begin in the past, so that a host whose clock is behind accepts a new one (G27).
"""
PEM_LIMIT = 64 * 1024
MIGRATION_LIFETIME_S = DAY_S
"""Validity of a migration's certificates: with disks it may take hours before the memory is sent."""


TRANSFER_LIFETIME_S = DAY_S
"""Validity of certificates for transfers of disks, also between clusters."""


def new_key() -> bytes:
    """Return a new private key (EC P-256)."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def sec1(key: bytes) -> bytes:
    """Return the same key in SEC 1 form ("EC PRIVATE KEY")."""
    return _private(key).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def new_authority(key: bytes, cluster_name: str, cluster_uuid: str, now: float) -> bytes:
    """Return the certificate of a cluster's authority."""
    private = _private(key)
    name = _name(cluster_name, cluster_uuid)
    builder = _builder(name, name, now, AUTHORITY_LIFETIME_S).public_key(private.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    return _signed(builder.add_extension(identifier, critical=False), private)


def signing_request(key: bytes, node_name: str) -> bytes:
    """Return a new node's request to the authority.

    Its public key, with proof of possession, and its name.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(node_name, ""))
    request = builder.sign(_private(key), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def sign_node(
    authority: bytes,
    authority_key: bytes,
    request: bytes,
    *,
    node_uuid: str,
    node_name: str,
    now: float,
) -> bytes:
    """Return a node's certificate; the names are the master's choice, only the key is the request's."""
    asked = _request(request)
    issuer = _certificate(authority)
    builder = _builder(_name(node_name, node_uuid), issuer.subject, now, NODE_LIFETIME_S)
    builder = builder.public_key(asked.public_key())
    names = [x509.DNSName(node_name), x509.UniformResourceIdentifier(f"urn:uuid:{node_uuid}")]
    usages = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage(usages), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.SubjectKeyIdentifier.from_public_key(asked.public_key()), False),
        (_authority_identifier(issuer), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return _signed(builder, _private(authority_key))


def role_authority(authority_key: bytes, role: str, now: float) -> bytes:
    """Return an authority for one role: the cluster's key with a name that no node's certificate has.

    Every candidate can create it, and accepts the certificates that the others sign with it.
    """
    private = _private(authority_key)
    name = _name(role, "")
    builder = _builder(name, name, now, AUTHORITY_LIFETIME_S).public_key(private.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    identifier = x509.SubjectKeyIdentifier(hashlib.sha256(role.encode()).digest()[:20])
    return _signed(builder.add_extension(identifier, critical=False), private)


def sign_peer(
    authority: bytes, authority_key: bytes, key: bytes, *, name: str, address: str, now: float
) -> bytes:
    """Return a certificate of a server, and of its clients, by the authority of `role_authority`."""
    issuer = _certificate(authority)
    public = _private(key).public_key()
    builder = _builder(_name(name, ""), issuer.subject, now, NODE_LIFETIME_S)
    # Nodes on loopback addresses identify each other by the first address.
    own = ipaddress.ip_address(address)
    addresses = {own, ipaddress.ip_address("127.0.0.1")} if own.is_loopback else {own}
    names = [x509.IPAddress(one) for one in sorted(addresses, key=str)]
    usages = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.public_key(public)
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage(usages), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (_authority_identifier(issuer), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return _signed(builder, _private(authority_key))


def self_signed(key: bytes, name: str, now: float, lifetime_s: float) -> bytes:
    """Return a certificate for one short conversation, identified only by its fingerprint."""
    private = _private(key)
    subject = _name(name, "")
    builder = _builder(subject, subject, now, lifetime_s).public_key(private.public_key())
    return _signed(builder, private)


KEY_NAME = re.compile(r"x509-[0-9a-z]{8,64}", re.ASCII)
"""The form of transfer keys' names, which are in their certificates."""
UPSTREAM_NAME = "ganeti.example.com"
"""The name in every certificate of upstream's transfers and servers."""


def for_transfer(key: bytes, name: str, now: float) -> bytes:
    """Return a certificate for either end of one disk transfer, for a day (S205), signed by itself."""
    private = _private(key)
    subject = _name(name, "")
    builder = _builder(subject, subject, now, TRANSFER_LIFETIME_S).public_key(private.public_key())
    usages = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage(usages), False),
        # Upstream's end checks the second name.
        (x509.SubjectAlternativeName([x509.DNSName(name), x509.DNSName(UPSTREAM_NAME)]), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return _signed(builder, private)


def transfer_name(certificate: bytes, now: float) -> str:
    """Return the name in a certificate of `for_transfer`.

    InputError for other certificates, or outside of its validity.
    """
    found = _certificate(certificate)
    begin, end = validity(certificate)
    if not begin <= now <= end:
        raise InputError("this certificate has expired, or is not valid yet")
    if found.public_bytes(serialization.Encoding.PEM).strip() != certificate.strip():
        raise InputError("this is more than one certificate in PEM form")
    names = found.subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    if len(names) != 1 or found.subject != found.issuer or _is_authority(found):
        raise InputError("this is not the certificate of a transfer")
    return str(names[0].value)


def is_upstream(certificate: bytes, now: float) -> bool:
    """Return whether a certificate belongs to a transfer of upstream, which contains a host name.

    InputError if it belongs to no transfer.
    """
    name = transfer_name(certificate, now)
    if KEY_NAME.fullmatch(name):
        return False
    host_name(name.lower(), "peer")
    return True


def _is_authority(certificate: "x509.Certificate") -> bool:
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return basic.value.ca


def for_rest(key: bytes, names: Sequence[str], addresses: Sequence[str], now: float) -> bytes:
    """Return the self-signed certificate of the REST server, which clients store and trust."""
    private = _private(key)
    subject = _name(names[0], "")
    others: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    others += [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
    builder = _builder(subject, subject, now, NODE_LIFETIME_S).public_key(private.public_key())
    for extension, is_critical in (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(others), False),
        (x509.SubjectKeyIdentifier.from_public_key(private.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return _signed(builder, private)


def for_migration(key: bytes, end: str, instance_uuid: str, now: float) -> bytes:
    """Return a certificate for one end (`source` or `target`) of one migration of one instance.

    It signs itself and nothing else, so only a process that has this certificate can accept it.
    """
    private = _private(key)
    name = migration_name(end, instance_uuid)
    subject = _name(name, "")
    builder = _builder(subject, subject, now, MIGRATION_LIFETIME_S).public_key(private.public_key())
    is_server = end == "target"
    usage = (
        oid.ExtendedKeyUsageOID.SERVER_AUTH if is_server else oid.ExtendedKeyUsageOID.CLIENT_AUTH
    )
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([usage]), False),
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return _signed(builder, private)


def migration_name(end: str, instance_uuid: str) -> str:
    """Return the name in the certificate of one end of a migration."""
    return f"{end}.{instance_uuid}.migration"


def is_for_migration(certificate: bytes, end: str, instance_uuid: str) -> bool:
    """Return whether a certificate was made for this end of a migration of this instance."""
    names = _certificate(certificate).subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return [one.value for one in names] == [migration_name(end, instance_uuid)]


def is_pair(certificate: bytes, key: bytes) -> bool:
    """Return whether the certificate belongs to this private key."""
    return _certificate(certificate).public_key() == _private(key).public_key()


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Return whether the authority signed the certificate."""
    try:
        _certificate(certificate).verify_directly_issued_by(_certificate(authority))
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def _private(key: bytes) -> "ec.EllipticCurvePrivateKey":
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as err:
        raise InputError("this is not a private key in PEM form") from err
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise InputError("only elliptic-curve keys are supported")
    return private


def _certificate(pem: bytes) -> "x509.Certificate":
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as err:
        raise InputError("this is not a certificate in PEM form") from err


def _request(pem: bytes) -> "x509.CertificateSigningRequest":
    def refuse(why: str) -> NoReturn:
        raise InputError(f"the node's signing request is refused: {why}")

    if len(pem) > PEM_LIMIT:
        refuse("it is too large")
    try:
        asked = x509.load_pem_x509_csr(pem)
        is_proved = asked.is_signature_valid
        public = asked.public_key()
    except Exception as err:  # noqa: BLE001 - a parser of foreign bytes
        refuse(f"it cannot be read ({type(err).__name__})")
    if not is_proved:
        refuse("it does not prove its key")
    if not isinstance(public, ec.EllipticCurvePublicKey):
        refuse("only elliptic-curve keys are signed")
    return asked


def _name(common: str, identity: str) -> "x509.Name":
    # X.509 bounds a common name at 64 characters; the whole name is in the alternative names.
    parts = [x509.NameAttribute(oid.NameOID.COMMON_NAME, common[:64])]
    if identity:
        parts.append(x509.NameAttribute(oid.NameOID.SERIAL_NUMBER, identity))
    return x509.Name(parts)


def _builder(
    subject: "x509.Name", issuer: "x509.Name", now: float, lifetime_s: float
) -> "x509.CertificateBuilder":
    def moment(seconds: float) -> dt.datetime:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)

    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(moment(now - BACKDATED_S)).not_valid_after(
        moment(now + lifetime_s)
    )


def _usage(*, signs: bool) -> "x509.KeyUsage":
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_identifier(issuer: "x509.Certificate") -> "x509.AuthorityKeyIdentifier":
    known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _signed(builder: "x509.CertificateBuilder", key: "ec.EllipticCurvePrivateKey") -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
