"""Signatures between clusters that share a secret: for certificates, names of keys, addresses of disks.

HMAC with SHA-1 over a salt and a text, as in Ganeti, so that a move between both works (S208,
S209).
"""

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

from ganeti.base.certificate_facts import validity
from ganeti.base.deferred import Deferred
from ganeti.base.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
else:
    x509 = Deferred("cryptography.x509")
    serialization = Deferred("cryptography.hazmat.primitives.serialization")

HEADER = "X-Ganeti-Signature"
HANDSHAKE_VERSION, HANDSHAKE = 0, "Hi, I'm Ganeti"
SALT_BYTES = 8
PEM_LIMIT = 16 * 1024
_SALT = re.compile(r"[a-zA-Z0-9]{1,64}", re.ASCII)
_SIGNATURE = re.compile(
    rf"^{HEADER}: ([a-zA-Z0-9]{{1,64}})/([0-9a-f]{{40}})\s*$", re.MULTILINE | re.ASCII
)
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)

Signed = tuple[str, str, str]
"""A text with its HMAC and the salt."""


def new_secret() -> str:
    """Return a secret for a new cluster: SHA-1 over 20 random bytes (S206)."""
    return hashlib.sha1(secrets.token_bytes(20)).hexdigest()  # noqa: S324 - as the seed says; the bytes are random


def new_salt() -> str:
    """Return a salt for one signature."""
    return secrets.token_hex(SALT_BYTES)


def digest(secret: str, text: str, salt: str) -> str:
    """Return the HMAC of a text."""
    return hmac.new(secret.encode(), (salt + text).encode(), hashlib.sha1).hexdigest()


def is_signed(secret: str | None, text: str, claimed: str, salt: str) -> bool:
    """Return whether the HMAC matches the text.

    True without a secret, because then nothing is checked (S207).
    """
    if secret is None:
        return True
    if not _SALT.fullmatch(salt) or not claimed.isascii():
        return False
    return hmac.compare_digest(digest(secret, text, salt), claimed.lower())


def sign_text(secret: str, text: str) -> Signed:
    """Return a text that the other cluster can verify."""
    salt = new_salt()
    return text, digest(secret, text, salt), salt


# Certificates


def sign_certificate(secret: str, certificate: str) -> str:
    """Return the certificate, in PEM form, below the line with its signature (S208)."""
    pem, salt = _canonical(certificate), new_salt()
    return f"{HEADER}: {salt}/{digest(secret, pem, salt)}\n\n{pem}"


def verified_certificate(secret: str | None, signed: str) -> str:
    """Return the only certificate, verified, in PEM form and nothing else; InputError (A60)."""
    if len(signed) > PEM_LIMIT:
        raise InputError("is too long for a certificate", "x509_ca")
    signatures, certificates = _SIGNATURE.findall(signed), _CERTIFICATE.findall(signed)
    if len(signatures) != 1 or len(certificates) != 1 or signed.count(HEADER) != 1:
        raise InputError("must have exactly one signature and one certificate", "x509_ca")
    pem, (salt, claimed) = _canonical(certificates[0]), signatures[0]
    if not is_signed(secret, pem, claimed, salt):
        raise InputError("Certificate not signed with this cluster's secret", "x509_ca")
    return pem


def check_not_expired(certificate: str, now: float) -> None:
    """Raise InputError if a certificate is not valid now."""
    begin, end = validity(certificate.encode("ascii"))
    if not begin <= now <= end:
        raise InputError("X509 certificate is expired", "x509_ca")


def _canonical(certificate: str) -> str:
    """Return the same certificate in OpenSSL's form, without surrounding text."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode("ascii"))
    except ValueError as err:
        raise InputError("this is not a certificate in PEM form", "x509_ca") from err
    return found.public_bytes(serialization.Encoding.PEM).decode("ascii")


# The handshake, and addresses that wait for disks


def new_handshake(secret: str) -> list[int | str]:
    """Return a proof that a cluster knows the secret."""
    _text, claimed, salt = sign_text(secret, f"{HANDSHAKE_VERSION}:{HANDSHAKE}")
    return [HANDSHAKE_VERSION, claimed, salt]


def check_handshake(secret: str | None, handshake: object) -> None:
    """Raise InputError unless the other cluster knows the secret."""
    match handshake:
        case [int() as version, str() as claimed, str() as salt]:
            pass
        case _:
            raise InputError("must be a version, a digest and a salt", "source_handshake")
    if not is_signed(secret, f"{version}:{HANDSHAKE}", claimed, salt):
        raise InputError(
            (
                "the other cluster has a different domain secret (gnt-cluster renew-crypto "
                "--cluster-domain-secret=FILE installs the same one)"
            ),
            "source_handshake",
        )
    if version != HANDSHAKE_VERSION:
        raise InputError(f"version {version} is not supported", "source_handshake")


def sign_disk(secret: str, index: int, host: str, port: int, magic: str) -> list[int | str]:
    """Return the signed address that waits for the data of a disk (S209)."""
    _text, claimed, salt = sign_text(secret, f"{index}:{host}:{port}:{magic}")
    return [host, port, magic, claimed, salt]


def verified_disk(secret: str | None, index: int, info: object) -> tuple[str, int, str]:
    """Return host, port and magic of a disk, signed by the other cluster; InputError."""
    field = f"target_node[{index}]"
    match info:
        case [str() as host, int() as port, str() as magic, str() as claimed, str() as salt]:
            pass
        case _:
            raise InputError("must be host, port, magic, digest and salt", field)
    if not is_signed(secret, f"{index}:{host}:{port}:{magic}", claimed, salt):
        raise InputError("is not signed with the cluster domain secret", field)
    return host, port, magic
