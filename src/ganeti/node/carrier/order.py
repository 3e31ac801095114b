"""The order of a carrier program: a file for root alone, with the program's results in files beside it.

.port, .key, .peer       from the node daemon: the open port, the key of the call, the peer's certificate
.progress                from the program: how far it is
.result or .error        how it ended
.received, .commit       of a receiver that holds its answer: all is synced; the answer may be sent
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ganeti.base.deferred import Deferred
from ganeti.node.carrier.greeting import DUMP

if TYPE_CHECKING:
    from ganeti.base import tls
else:
    tls = Deferred("ganeti.base.tls")

FILE = "stream.order"


class ChangesOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Only the changes of the path are read: those against the sums in a file, or all blocks that are not zero."""

    sums: str = ""
    export: str = ""
    """The path is QEMU's socket, and this the export of the disk; '': the path is the disk."""
    bitmap: str = ""
    """Read only the blocks of this dirty bitmap of QEMU."""
    whole: bool = False
    """Send all of the disk as it is, not the changes as records."""
    spare: str = ""
    """A directory with too little free space ends the work: QEMU keeps old blocks there for a moment."""


class PointOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A disk of a backup is read, or the sums of its blocks."""

    directory: str
    point: str
    disk: str
    sums: bool = False


class ImageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A new image of a backup is written."""

    directory: str
    file: str
    backing: str
    disk: str
    size: int


class EndOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A source or a sink: a path, a script, or a part of a backup."""

    path: str = ""
    argv: tuple[str, ...] = ()
    changes: ChangesOrder | None = None
    point: PointOrder | None = None
    image: ImageOrder | None = None
    makes_file: bool = False
    """The path is a new file."""
    has_zeros: bool = False
    """Unwritten parts of the path read as zeros."""
    is_image: bool = False
    """The path is a disk in an image, not the disk itself."""


class StreamOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A source is sent, a sink is filled from the network; with both, the program copies on its own node."""

    source: EndOrder | None = None
    sink: EndOrder | None = None
    size: int
    limit: int = 0
    compress: str = "none"
    level: int = 0
    """The zlib level by which the sender compresses frame by frame."""
    sha256: str = ""
    """The digest that the receiver's data must have; '': any."""
    digests: bool = False
    """True if the sender returns the digest of its data."""
    sealed: bool = True
    """True if the sender seals its frames; unnecessary if the receiver knows the digest of the data."""
    form: str = DUMP
    """`raw`, `script` or `dump`."""
    hold: bool = False
    """Answer the sender only after `.commit`, because it may then remove its data."""
    wait_s: float = 60.0
    """Time that the receiver waits for its sender."""
    silence_s: float = 600.0
    """Time that the peer may be silent while data moves."""
    wire: str = "frames"
    """The protocol, by its name in `wires.py`."""
    rate: int = 0
    """Limit of the sent data in bytes a second, zeros not counted; 0: none."""
    token: str = ""
    address: str = ""
    port: int = 0
    certificate: str = ""
    key: str = ""
    peer: str = ""
    """The file of the trusted authority of the peer's certificate; it may be that certificate itself."""
    fingerprint: str = ""
    """Fingerprint of the peer's certificate; '': `peer` is that certificate."""

    @property
    def tls(self) -> "TlsFiles":
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.peer), self.fingerprint)

    @property
    def total(self) -> int:
        """Return the number of bytes to move, 0 if a script decides."""
        return 0 if any(end and end.argv for end in (self.source, self.sink)) else self.size


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: own certificate and key, and trusted certificates; and the peer's required fingerprint."""

    certificate: Path
    key: Path
    peer: Path
    fingerprint: str = ""

    @property
    def expected(self) -> str:
        """Return the fingerprint of the only accepted certificate."""
        if self.fingerprint:
            return self.fingerprint
        return tls.fingerprint(self.peer.read_bytes())


def order_file(directory: Path, token: str, role: str) -> Path:
    """Return the path of the order of one end below a directory; both ends may be on one node."""
    name = hashlib.sha256(token.encode()).hexdigest()[:32]
    return directory / f"{name}-{role}" / FILE
