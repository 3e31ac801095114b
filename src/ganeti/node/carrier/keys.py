"""Keys for one transfer each: created here, never sent, removed with the transfer (S204, S210, S216)."""

import shutil
from pathlib import Path

from ganeti.base import certificates
from ganeti.base.clock import Clock
from ganeti.base.errors import HostError, InputError
from ganeti.base.files import write_atomically
from ganeti.node.carrier.order import TlsFiles

_INSTANCE = "instance"


class TransferKeys:
    """The keys of this node; all calls block."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def create(self, name: str, instance: str) -> str:
        """Return the certificate (PEM) of a new key for this instance's disks, or of the existing key."""
        directory = self._key_directory(name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (directory / _INSTANCE).exists():
            write_atomically(directory / _INSTANCE, instance.encode())
        self._check(name, instance)
        certificate = directory / "cert.pem"
        if not certificate.exists():
            key = certificates.new_key()
            content = certificates.for_transfer(key, name, self._clock.time())
            write_atomically(directory / "key.pem", key)
            write_atomically(certificate, content)
        return certificate.read_text("ascii")

    def remove(self, name: str, instance: str) -> None:
        """Remove a key of this instance, if it exists; its users have read it already, or fail."""
        directory = self._key_directory(name)
        if directory.exists():
            self._check(name, instance)
            shutil.rmtree(directory, ignore_errors=True)

    def files(self, name: str, instance: str, peer: str, beside: Path) -> TlsFiles:
        """Return the TLS files for talking to `peer`, whose certificate is stored beside an order."""
        directory = self._key_directory(name)
        if not (directory / "key.pem").exists():
            raise HostError(
                f"this node has no key {name}: the transfer was ended, or the node was restarted"
            )
        self._check(name, instance)
        self.is_upstream(peer)  # refuses anything but the certificate of a transfer
        other = beside.with_suffix(".peer")
        write_atomically(other, peer.encode("ascii"))
        return TlsFiles(directory / "cert.pem", directory / "key.pem", other)

    def is_upstream(self, peer: str) -> bool:
        """Apply `certificates.is_upstream` at the present time."""
        return certificates.is_upstream(peer.encode("ascii", "replace"), self._clock.time())

    def names(self) -> list[str]:
        """Return the names of the keys."""
        try:
            return sorted(one.name for one in self._directory.iterdir())
        except FileNotFoundError:
            return []

    def _check(self, name: str, instance: str) -> None:
        """Raise InputError if the key was made for another instance: it must not move other disks (A60)."""
        try:
            owner = (self._key_directory(name) / _INSTANCE).read_text()
        except FileNotFoundError:  # its creation was interrupted
            return
        if owner != instance:
            raise InputError(f"{name} was made for {owner}, not for {instance}", "key_name")

    def _key_directory(self, name: str) -> Path:
        return self._directory / check_key_name(name)


def check_key_name(name: str) -> str:
    """Return the name if it is the name of a key; InputError (A43)."""
    if not certificates.KEY_NAME.fullmatch(name):
        raise InputError(f"{name!r:.80} is not the name of a transfer's key", "key_name")
    return name
