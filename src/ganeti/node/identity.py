"""A node's next key and certificate: created here, signed by the master, installed together.

The key never leaves the node. `node.key.next` waits for its certificate; then both are copied over
the old files. After a crash in between, the next start of the daemon finishes the copy.
"""

import asyncio
import logging

from ganeti.base import certificates, tls
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.identity import (
    AUTHORITIES_WRITE,
    NODE_CERTIFICATE_SWITCH,
    NODE_KEY_REQUEST,
    AuthoritiesArgs,
    CertificateArgs,
    KeyRequest,
)

AUTHORITIES_LIMIT = 20

log = logging.getLogger(__name__)


def handlers(paths: Paths) -> Handlers:
    """Return the handlers; all are idempotent."""
    changing = asyncio.Lock()

    async def request(_args: Nothing, _call: Call) -> KeyRequest:
        async with changing:
            try:
                return await asyncio.to_thread(_request, paths)
            except OSError as err:
                raise HostError(f"cannot create a key: {err.strerror}") from err

    async def switch(args: CertificateArgs, _call: Call) -> Nothing:
        async with changing:
            try:
                await asyncio.to_thread(_switch, paths, args.certificate.encode())
            except OSError as err:
                raise HostError(f"cannot store the certificate: {err.strerror}") from err
        tls.reload_changed()
        return Nothing()

    async def write(args: AuthoritiesArgs, _call: Call) -> Nothing:
        async with changing:
            try:
                await asyncio.to_thread(_write, paths, args.authorities)
            except OSError as err:
                raise HostError(f"cannot store the authorities: {err.strerror}") from err
        tls.reload_changed()
        return Nothing()

    return {
        NODE_KEY_REQUEST.name: request,
        NODE_CERTIFICATE_SWITCH.name: switch,
        AUTHORITIES_WRITE.name: write,
    }


def finish_switch(paths: Paths) -> None:
    """Finish the work that a crash interrupted; raise OSError on failure."""
    if paths.next_node_certificate.exists() and paths.next_node_key.exists():
        log.info("installing this node's new key and certificate")
        write_atomically(paths.node_key, paths.next_node_key.read_bytes(), mode=0o600)
        certificate = paths.next_node_certificate.read_bytes()
        write_atomically(paths.node_certificate, certificate, mode=0o644)
    paths.next_node_certificate.unlink(missing_ok=True)
    if paths.next_node_key.exists() and _same(paths):
        paths.next_node_key.unlink()
    sync_directory(paths.data)


def _same(paths: Paths) -> bool:
    return paths.next_node_key.read_bytes() == paths.node_key.read_bytes()


def _request(paths: Paths) -> KeyRequest:
    finish_switch(paths)
    current = paths.node_certificate.read_bytes()
    _uuid, name = node_identity(current)
    if not paths.next_node_key.exists():
        write_atomically(paths.next_node_key, certificates.new_key(), mode=0o600)
    request = certificates.signing_request(paths.next_node_key.read_bytes(), name)
    return KeyRequest(fingerprint=tls.fingerprint(current), request=request.decode())


def _switch(paths: Paths, certificate: bytes) -> None:
    current = paths.node_certificate.read_bytes()
    if certificate == current:
        finish_switch(paths)
        return
    if not paths.next_node_key.exists():
        raise PrereqError("this node has no pending key for the certificate", ErrorCode.WRONG_STATE)
    if not certificates.is_pair(certificate, paths.next_node_key.read_bytes()):
        raise InputError("does not match the pending key of this node", "certificate")
    if node_identity(certificate) != node_identity(current):
        raise InputError("is for another node", "certificate")
    if not certificates.is_signed_by(certificate, paths.authority_certificate.read_bytes()):
        raise InputError("is not signed by the cluster's authority", "certificate")
    write_atomically(paths.next_node_certificate, certificate, mode=0o644)
    finish_switch(paths)


def _write(paths: Paths, authorities: tuple[str, ...]) -> None:
    if not 0 < len(authorities) <= AUTHORITIES_LIMIT:
        raise InputError(f"must be from 1 to {AUTHORITIES_LIMIT}", "authorities")
    for one in authorities:
        tls.fingerprint(one.encode())
    content = "".join(authorities).encode()
    if paths.authority_certificate.read_bytes() != content:
        write_atomically(paths.authority_certificate, content, mode=0o644)
