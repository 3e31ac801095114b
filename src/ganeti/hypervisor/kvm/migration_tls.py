"""TLS between the two QEMU processes of one migration, with keys for this migration only.

Each end makes a key and a self-signed certificate, for this migration of this instance. The master's own calls transfer
the certificates; each end accepts exactly the other's certificate. So a guest that has compromised its QEMU gains
nothing from them: no authority has signed them, and no list of candidates contains them (G22, G23).

The source's key is in this daemon's memory from `identity` to `sending`; the target's is made when it is needed. QEMU
reads the files at the command that names them, so they exist only for that moment, readable by that process
alone (A62).
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti.base import certificates
from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.paths import Paths
from ganeti.base.process_table import PROC
from ganeti.hypervisor.kvm.guests import Guest
from ganeti.hypervisor.kvm.monitor import Ask, CommandRefused

CREDENTIALS = "migration-credentials"
"""Name of the object in QEMU."""
SOURCE, TARGET = "source", "target"
SHARED_DIRECTORY = Path("/run/ganeti-kvm-tls")
"""The directory of the files for QEMU processes without an empty root of their own.

Every user may reach it, unlike a local cluster's own directory. Only root can create files in it.
"""
DH_PARAMETERS = b"""-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""
"""The public group ffdhe2048 (RFC 7919). Without it, a receiving QEMU searches a prime of its own, which pauses it for
up to some seconds."""
SEARCHABLE, FILE_MODE = 0o711, 0o400


@dataclass(frozen=True)
class Link:
    """One end of an encrypted connection, in the form of QEMU's commands."""

    hostname: str = ""
    """The name in the peer's certificate; '' at the receiving end."""

    def migration_parameters(self) -> dict[str, str]:
        """Return the arguments of `migrate-set-parameters`."""
        return {"tls-creds": CREDENTIALS, "tls-hostname": self.hostname}


@dataclass(frozen=True)
class _Identity:
    """Key and certificate of one end of one migration, in PEM form."""

    key: bytes
    certificate: bytes

    @classmethod
    def new(cls, end: str, instance_uuid: str, now: float) -> "_Identity":
        key = certificates.new_key()
        # Of a key in PKCS 8 form, GnuTLS 3.7 leaves a copy in freed memory.
        return cls(certificates.sec1(key), certificates.for_migration(key, end, instance_uuid, now))


class MigrationTls:
    """Makes, passes on and forgets the certificates that QEMU processes of this node show each other."""

    def __init__(
        self,
        paths: Paths,
        *,
        shared: Path = SHARED_DIRECTORY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared if os.geteuid() == 0 else paths.kvm_tls
        self._node = hashlib.sha256(bytes(paths.kvm)).hexdigest()[:8]
        self._now = now
        self._sources: dict[str, _Identity] = {}

    def identity(self, instance_uuid: str) -> str:
        """Return a new certificate (PEM) for a guest to be sent; its key is kept in memory."""
        made = _Identity.new(SOURCE, instance_uuid, self._now())
        self._sources[instance_uuid] = made
        return made.certificate.decode("ascii")

    async def receiving(self, guest: Guest, peer: str) -> tuple[Link, str]:
        """Let a QEMU accept the one peer with this certificate; return the certificate that it will show."""
        accepted = _checked(peer, SOURCE, guest.instance.uuid)
        made = _Identity.new(TARGET, guest.instance.uuid, self._now())
        await self.forget(guest.ask)
        await self._install(guest, "server", made, accepted)
        return Link(), made.certificate.decode("ascii")

    async def sending(self, guest: Guest, peer: str) -> Link:
        """Let a QEMU connect to the one peer that has this certificate."""
        uuid = guest.instance.uuid
        accepted = _checked(peer, TARGET, uuid)
        made = self._sources.get(uuid)
        if made is None:
            raise HypervisorError(
                "the node daemon was restarted since this migration began, and its key is lost;"
                " nothing has moved: repeat the migration"
            )
        await self.forget(guest.ask)
        await self._install(guest, "client", made, accepted)
        return Link(certificates.migration_name(TARGET, uuid))

    async def forget(self, ask: Ask) -> None:
        """Remove the settings of a migration from QEMU; no-op without them."""
        with contextlib.suppress(CommandRefused):
            await ask("object-del", {"id": CREDENTIALS})

    def discard(self, instance_uuid: str) -> None:
        """Forget the key of a finished migration."""
        self._sources.pop(instance_uuid, None)

    def leftovers(self) -> list[str]:
        """Return the short UUIDs of guests whose files still exist."""
        return [path.name.rpartition(f"{self._node}-")[2] for path in self._placed("*")]

    def remove_files(self, short_uuid: str) -> None:
        """Remove the files of a guest that does not read them now; no-op if there are none."""
        for path in self._placed(short_uuid):
            _remove(path)

    def _placed(self, short_uuid: str) -> list[Path]:
        return sorted(self._shared.glob(f"tls-{self._node}-{short_uuid}"))

    async def clean_up(self, guest: Guest) -> None:
        """Remove an earlier daemon's settings from a live guest that is in no migration."""
        _remove(self._directory(guest))
        objects = await guest.ask("qom-list", {"path": "/objects"})
        if any(one["name"] == CREDENTIALS for one in objects):
            await self.forget(guest.ask)

    async def _install(self, guest: Guest, endpoint: str, own: _Identity, accepted: bytes) -> None:
        """Pass certificates and key to the process.

        Our own checks decide whom to accept; QEMU's preliminary checks of its files do not support self-signed
        certificates of a peer.
        """
        files = {
            "ca-cert.pem": accepted,
            f"{endpoint}-cert.pem": own.certificate,
            f"{endpoint}-key.pem": own.key,
        }
        if endpoint == "server":
            files["dh-params.pem"] = DH_PARAMETERS
        with self._readable_by(guest, files) as directory:
            arguments = {
                "qom-type": "tls-creds-x509",
                "id": CREDENTIALS,
                "dir": directory,
                "endpoint": endpoint,
                "verify-peer": True,
                "sanity-check": False,
            }
            await guest.ask("object-add", arguments)

    def _directory(self, guest: Guest) -> Path:
        """Return the directory of the files of this guest's process, in this daemon's view."""
        name = f"tls-{self._node}-{guest.files.short_uuid}"
        if _root_of(guest) == Path("/"):
            return self._shared / name
        return guest.files.chroot / name

    @contextlib.contextmanager
    def _readable_by(self, guest: Guest, files: Mapping[str, bytes]) -> Iterator[str]:
        """Write files that only the guest's process can read; give their directory in that process's view."""
        try:
            directory = self._directory(guest)
            is_shared = directory.parent == self._shared
            if is_shared:
                self._shared.mkdir(mode=SEARCHABLE, parents=True, exist_ok=True)
                self._shared.chmod(SEARCHABLE)
            _remove(directory)
            directory.mkdir(mode=SEARCHABLE)
            directory.chmod(SEARCHABLE)
        except OSError as err:
            raise HypervisorError(f"cannot write the certificates for QEMU: {err}") from err
        try:
            _fill(directory, files, *_owner(PROC / str(guest.record.pid)))
            yield str(directory) if is_shared else f"/{directory.name}"
        except OSError as err:
            raise HypervisorError(f"cannot write the certificates for QEMU: {err}") from err
        finally:
            _remove(directory)


def _checked(peer: str, end: str, instance_uuid: str) -> bytes:
    """Return the peer's certificate; HypervisorError unless it is for this end and instance."""
    pem = peer.encode()
    try:
        is_right = certificates.is_for_migration(pem, end, instance_uuid)
    except InputError as err:
        raise HypervisorError(f"the other node's certificate is invalid: {err.message}") from err
    if not is_right:
        raise HypervisorError(
            f"the other node's certificate is invalid: it is not for the {end} of this migration"
        )
    return pem


def _root_of(guest: Guest) -> Path:
    """Return the root directory of the guest's process."""
    try:
        return (PROC / str(guest.record.pid) / "root").readlink()
    except OSError as err:
        raise HypervisorError(
            f"cannot read the process of {guest.instance.name}'s QEMU: {err}"
        ) from err


def _owner(process: Path) -> tuple[int, int]:
    """Return the user and group with which a process opens files."""
    found = re.findall(
        r"^[UG]id:(?:\s+\d+){3}\s+(\d+)$", (process / "status").read_text(), re.MULTILINE
    )
    uid, gid = (int(number) for number in found)
    return uid, gid


def _fill(directory: Path, files: Mapping[str, bytes], uid: int, gid: int) -> None:
    """Create the directory as root's, so that the files' owner cannot block it."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name, content in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, FILE_MODE, dir_fd=opened), "wb") as file:
                file.write(content)
                os.fchown(file.fileno(), uid, gid)
    finally:
        os.close(opened)


def _remove(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
