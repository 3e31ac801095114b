"""TLS between the QEMU processes of two nodes: each shows its node's certificate, and accepts one other.

The sending end pins the very certificate of the receiving node; the receiving end asks for one that
the cluster's authority signed for the sending node (its name and UUID). A QEMU reads the files the
moment it is told of them, so they exist only for that moment, readable by that process alone (A62).
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti.base import certificates
from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.guests import Guest
from ganeti.hypervisor.kvm.monitor import Ask, CommandRefused
from ganeti.hypervisor.kvm.processes import PROC

CREDENTIALS, PEER = "move-credentials", "move-peer"
"""Names of the objects in QEMU."""
DH_PARAMETERS = b"""-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""
"""The public group ffdhe2048 (RFC 7919). Without it, a receiving QEMU looks for a prime of its own,
and stands still for up to some seconds meanwhile."""
DIRECTORY_MODE, FILE_MODE = 0o700, 0o400
SEARCHABLE = 0o711


@dataclass(frozen=True)
class Link:
    """One end of an encrypted connection, as QEMU's commands want it."""

    hostname: str = ""
    """The name in the other end's certificate; '' at the receiving end."""

    def migration_parameters(self) -> dict[str, str]:
        """What `migrate-set-parameters` is told."""
        if self.hostname:
            return {"tls-creds": CREDENTIALS, "tls-hostname": self.hostname, "tls-authz": ""}
        return {"tls-creds": CREDENTIALS, "tls-hostname": "", "tls-authz": PEER}


class NodeTls:
    """This node's certificate, for its QEMU processes."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def certificate(self) -> str:
        """What the other end must know of this one (PEM)."""
        return self._read(self._paths.node_certificate).decode("ascii", "replace")

    async def receiving(self, guest: Guest, peer: str) -> Link:
        """Let a QEMU accept connections from the node of this certificate, and from nobody else."""
        with _understood():
            identity = certificates.distinguished_name(peer.encode())
        authority = self._read(self._paths.authority_certificate)
        await self.forget(guest.ask)
        arguments = {"qom-type": "authz-simple", "id": PEER, "identity": identity}
        await guest.ask("object-add", arguments)
        await self._install(guest, "server", authority)
        return Link()

    async def sending(self, guest: Guest, peer: str) -> Link:
        """Let a QEMU connect to the node of this certificate, and to nobody else."""
        with _understood():
            _uuid, hostname = certificates.node_identity(peer.encode())
        await self.forget(guest.ask)
        await self._install(guest, "client", peer.encode())
        return Link(hostname)

    async def forget(self, ask: Ask) -> None:
        """Remove what an earlier move told this QEMU; harmless if nothing is there."""
        for name in (CREDENTIALS, PEER):
            with contextlib.suppress(CommandRefused):
                await ask("object-del", {"id": name})

    async def _install(self, guest: Guest, endpoint: str, accepted: bytes) -> None:
        """Hand certificates and key to the process.

        Our own checks decide who is accepted; those that QEMU makes of its files beforehand do not
        know that a peer's certificate can stand for itself.
        """
        files = {
            "ca-cert.pem": accepted,
            f"{endpoint}-cert.pem": self._read(self._paths.node_certificate),
            f"{endpoint}-key.pem": self._read(self._paths.node_key),
        }
        if endpoint == "server":
            files["dh-params.pem"] = DH_PARAMETERS
        with _readable_by(self._paths, guest, files) as directory:
            arguments = {
                "qom-type": "tls-creds-x509",
                "id": CREDENTIALS,
                "dir": directory,
                "endpoint": endpoint,
                "verify-peer": True,
                "sanity-check": False,
            }
            await guest.ask("object-add", arguments)

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as err:
            raise HypervisorError(
                f"guests are moved over TLS only, and {path} cannot be read: {err.strerror}"
            ) from err


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except InputError as err:
        raise HypervisorError(f"the other node's certificate is of no use: {err.message}") from err


@contextlib.contextmanager
def _readable_by(paths: Paths, guest: Guest, files: Mapping[str, bytes]) -> Iterator[str]:
    """Have files that only the guest's process can read; yields their directory as that process sees it."""
    process = PROC / str(guest.record.pid)
    try:
        root = (process / "root").readlink()
        uid, gid = _owner(process)
        is_confined = root != Path("/")
        place = root if is_confined else paths.kvm_tls
        if not is_confined:
            place.mkdir(mode=SEARCHABLE, parents=True, exist_ok=True)
            place.chmod(SEARCHABLE)
        directory = place / f"tls-{guest.files.short_uuid}"
        _remove(directory)
        directory.mkdir(mode=DIRECTORY_MODE)
    except OSError as err:
        raise HypervisorError(f"certificates for QEMU cannot be put down: {err}") from err
    try:
        _fill(directory, files, uid, gid)
        yield f"/{directory.name}" if is_confined else str(directory)
    except OSError as err:
        raise HypervisorError(f"certificates for QEMU cannot be put down: {err}") from err
    finally:
        _remove(directory)


def _owner(process: Path) -> tuple[int, int]:
    """The user and group with whose rights a process opens files, whoever started it."""
    found = re.findall(
        r"^[UG]id:(?:\s+\d+){3}\s+(\d+)$", (process / "status").read_text(), re.MULTILINE
    )
    uid, gid = (int(number) for number in found)
    return uid, gid


def _fill(directory: Path, files: Mapping[str, bytes], uid: int, gid: int) -> None:
    """Through the directory just made, and it last, so that its owner cannot put anything in the way."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name, content in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, FILE_MODE, dir_fd=opened), "wb") as file:
                file.write(content)
                os.fchown(file.fileno(), uid, gid)
        os.fchown(opened, uid, gid)
    finally:
        os.close(opened)


def _remove(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
