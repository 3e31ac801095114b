"""TLS 1.3 between nodes, and the fingerprints that say who may talk.

Nothing here makes or takes apart a certificate, so the node daemon stays small (`certificates.py`
does that). A fingerprint is the SHA-256 of the DER form, as lower-case hexadecimal digits.
"""

import asyncio
import hashlib
import ssl
from pathlib import Path

from ganeti.base.errors import HostError, InputError


def fingerprint(certificate: bytes) -> str:
    """The fingerprint of a certificate in PEM form; InputError if it is none."""
    try:
        return fingerprint_of_der(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii").strip()))
    except ValueError as err:
        raise InputError(f"this is not a certificate in PEM form: {err}") from err


def fingerprint_of_der(der: bytes) -> str:
    """The fingerprint of a certificate in DER form."""
    return hashlib.sha256(der).hexdigest()


def is_fingerprint(text: str) -> bool:
    """Whether `text` is 64 hexadecimal digits in lower case."""
    return len(text) == 64 and not set(text) - set("0123456789abcdef")  # noqa: PLR2004 - SHA-256


def peer_fingerprint(transport: asyncio.BaseTransport | None) -> str | None:
    """The fingerprint of the other end's certificate; None without TLS or without a certificate."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    return fingerprint_of_der(der) if der else None


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """TLS 1.3 for a node's server: callers must have a certificate of the authority."""
    return _mutual(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)


def client_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """TLS 1.3 for calls to nodes; the caller compares the fingerprint, so names do not matter."""
    return _mutual(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)


def authority_context(authority: Path) -> ssl.SSLContext:
    """TLS to servers of somebody else, whose names and certificates are checked."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    try:
        context.load_verify_locations(authority)
    except OSError as err:
        raise HostError(f"the certificates in {authority} cannot be used: {err}") from err
    return context


def one_shot_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 for a join's listener: whoever calls proves itself by the secret, inside."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return context


def pinned_client_context() -> ssl.SSLContext:
    """TLS 1.3 to a peer that the caller knows by its fingerprint alone, and must check at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _mutual(protocol: int, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except OSError as err:  # ssl.SSLError is one
        files = f"{certificate}, {key} and {authority}"
        raise HostError(f"the certificates of this node cannot be used ({files}): {err}") from err
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # each connection shows its certificate anew
    return context
