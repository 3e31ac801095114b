"""TLS 1.3 between nodes, and the fingerprints that say who may talk.

Nothing here makes or takes apart a certificate, so the node daemon stays small (`certificates.py`
does that). A fingerprint is the SHA-256 of the DER form, as lower-case hexadecimal digits.
"""

import hashlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ganeti.base.errors import HostError, InputError

if TYPE_CHECKING:  # the programs that carry disks have no use for it, and it is slow to import
    import asyncio

RELOAD_S = 1.0

_log = logging.getLogger(__name__)


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


def peer_fingerprint(transport: "asyncio.BaseTransport | None") -> str | None:
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
    """TLS to external servers, whose names and certificates are checked."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    try:
        context.load_verify_locations(authority)
    except OSError as err:
        raise HostError(f"the certificates in {authority} cannot be used: {err}") from err
    return context


def one_shot_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 for a join's listener: the caller proves itself by the secret, inside."""
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
        context.num_tickets = 0  # each connection presents its certificate again
    sources = _Files(certificate, key, authority)
    _contexts[context] = _Loaded(sources, sources.state())
    return context


@dataclass(frozen=True)
class _Files:
    certificate: Path
    key: Path
    authority: Path

    def state(self) -> tuple[tuple[int, int, int], ...]:
        found = [path.stat() for path in (self.certificate, self.key, self.authority)]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


@dataclass
class _Loaded:
    files: _Files
    state: tuple[tuple[int, int, int], ...]
    generation: int = 0


_contexts: WeakKeyDictionary[ssl.SSLContext, _Loaded] = WeakKeyDictionary()


def reload_changed() -> bool:
    """Let contexts of this process use their files as they are now, in new connections; whether any changed.

    An authority that is taken out of its file counts until the process ends; who may call is a question of
    fingerprints. Files that do not fit together, since they are being replaced, are left for the next time.
    """
    changed = False
    for context, loaded in list(_contexts.items()):
        files = loaded.files
        try:
            state = files.state()
            if state == loaded.state:
                continue
            context.load_verify_locations(files.authority)
            context.load_cert_chain(files.certificate, files.key)
        except OSError as err:  # ssl.SSLError is one
            _log.debug("%s is not loaded now: %s", files.certificate, err)
            continue
        loaded.state = state
        loaded.generation += 1
        changed = True
    return changed


def generation(context: ssl.SSLContext) -> int:
    """How often a context was reloaded; connections of an earlier context must be closed."""
    loaded = _contexts.get(context)
    return loaded.generation if loaded else 0


async def keep_current() -> None:
    """Look each second whether the files of contexts are others, until cancelled."""
    import asyncio  # noqa: PLC0415 - as above

    while True:
        await asyncio.sleep(RELOAD_S)
        reload_changed()
