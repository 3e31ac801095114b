"""TLS 1.3 between nodes, and the fingerprints that authorise callers.

Nothing here creates or reads a certificate (`certificates.py`, `certificate_facts.py`). A
fingerprint is the SHA-256 of the DER form, as lower-case hexadecimal digits.
"""

import hashlib
import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ganeti.base.errors import HostError, InputError

if TYPE_CHECKING:  # the programs that transfer disks do not use it, and it is slow to import
    import asyncio

LOOK_AGAIN_S = 1.0
"""Maximum age of the knowledge of a kept connection's required certificate."""
AUTHORITIES_LIMIT = 1 << 16
"""Characters of certificates that an object of the configuration may have."""

_log = logging.getLogger(__name__)


def fingerprint(certificate: bytes) -> str:
    """Return the fingerprint of a certificate in PEM form; InputError."""
    try:
        return fingerprint_of_der(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii").strip()))
    except ValueError as err:
        raise InputError(f"this is not a certificate in PEM form: {err}") from err


def fingerprint_of_der(der: bytes) -> str:
    """Return the fingerprint of a certificate in DER form."""
    return hashlib.sha256(der).hexdigest()


def is_fingerprint(text: str) -> bool:
    """Return whether `text` is 64 hexadecimal digits in lower case."""
    return len(text) == 64 and not set(text) - set("0123456789abcdef")  # noqa: PLR2004 - SHA-256


def peer_fingerprint(transport: "asyncio.BaseTransport | None") -> str | None:
    """Return the fingerprint of the peer's certificate; None without TLS or without a certificate."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    return fingerprint_of_der(der) if der else None


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return TLS 1.3 for a node's server: callers must have a certificate of the authority."""
    return _mutual(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)


def client_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return TLS 1.3 for calls to nodes; the caller compares the fingerprint, so names do not matter."""
    return _mutual(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)


def authority_context(authority: Path) -> ssl.SSLContext:
    """Return TLS to external servers, whose names and certificates are checked."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    try:
        context.load_verify_locations(authority)
    except OSError as err:
        raise HostError(f"the certificates in {authority} cannot be used: {err}") from err
    return context


def authorities_context(pem: str) -> ssl.SSLContext:
    """Return the context of a client that accepts only servers of these authorities; InputError for other texts."""
    if len(pem) > AUTHORITIES_LIMIT:
        raise InputError(f"must have at most {AUTHORITIES_LIMIT} characters", "authorities")
    try:
        return ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError) as err:  # the two others: empty, not ASCII
        raise InputError(
            f"must be certificates as PEM, from -----BEGIN CERTIFICATE----- on ({err})",
            "authorities",
        ) from err


def check_authorities(pem: str) -> None:
    """Refuse a text that is not one or several certificates; InputError."""
    authorities_context(pem)


def one_shot_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return TLS 1.3 for a listener of one connection: the caller proves itself by a secret, inside."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return context


def pinned_client_context() -> ssl.SSLContext:
    """Return TLS 1.3 to a peer that the caller knows by its fingerprint alone, and must check at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True)
class _Files:
    certificate: Path
    key: Path
    authority: Path

    def state(self) -> tuple[tuple[int, int, int], ...]:
        found = [path.stat() for path in (self.certificate, self.key, self.authority)]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


class _FileContext(ssl.SSLContext):
    """A context whose new connections use the present content of its files."""

    files: _Files
    state: tuple[tuple[int, int, int], ...]
    generation: int
    looked_at: float

    def load(self, files: _Files) -> None:
        """Use these files from now on; raise OSError where they do not fit together."""
        state = files.state()
        self.load_verify_locations(files.authority)
        self.load_cert_chain(files.certificate, files.key)
        self.files, self.state, self.generation = files, state, 0
        self.looked_at = time.monotonic()
        _contexts.add(self)

    def reload(self) -> bool:
        """Load the files again if they have changed, and return whether they have.

        Files that do not fit together, because another process is replacing them, are loaded the next time.
        """
        self.looked_at = time.monotonic()
        files = self.files
        try:
            state = files.state()
            if state == self.state:
                return False
            self.load_verify_locations(files.authority)
            self.load_cert_chain(files.certificate, files.key)
        except OSError as err:  # ssl.SSLError is one
            _log.debug("%s is not loaded now: %s", files.certificate, err)
            return False
        self.state = state
        self.generation += 1
        return True

    def wrap_bio(self, *args: Any, **settings: Any) -> ssl.SSLObject:
        """Start a connection, as the loop does for both ends."""
        self.reload()
        return super().wrap_bio(*args, **settings)


_contexts: WeakSet[_FileContext] = WeakSet()


def _mutual(protocol: int, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    context = _FileContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load(_Files(certificate, key, authority))
    except OSError as err:  # ssl.SSLError is one
        files = f"{certificate}, {key} and {authority}"
        raise HostError(f"the certificates of this node cannot be used ({files}): {err}") from err
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # each connection presents its certificate again
    return context


def reload_changed() -> bool:
    """Let contexts of this process use the present content of their files; return whether any changed.

    An authority removed from its file stays valid until the process ends; callers are authorised by
    fingerprints.
    """
    changed = [context for context in list(_contexts) if context.reload()]
    return bool(changed)


def generation(context: ssl.SSLContext) -> int:
    """Return how often a context was reloaded; connections of an earlier context must be closed.

    Looks at the files again where the last look was more than a second ago.
    """
    if not isinstance(context, _FileContext):
        return 0
    if time.monotonic() - context.looked_at >= LOOK_AGAIN_S:
        context.reload()
    return context.generation
