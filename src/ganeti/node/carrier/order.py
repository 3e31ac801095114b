"""What a program of the carrier has to do: a file for root alone; results are written to files beside it.

.port, .key, .peer       from the node daemon: the open port, the key of the call, the other end's certificate
.progress                from the program: how far it is
.result or .error        how it ended
.received, .commit       of a receiver that holds its answer: all is synced; the answer may be sent
"""

import hashlib
import ssl
from pathlib import Path

import msgspec

from ganeti.base.tls import fingerprint_of_der
from ganeti.node.carrier.greeting import DUMP

FILE = "stream.order"


class EndOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A source or a sink: a path, or else a script."""

    path: str = ""
    argv: tuple[str, ...] = ()
    makes_file: bool = False
    """The path is a new file."""
    has_zeros: bool = False
    """Where nothing is written, the path reads as zeros."""


class StreamOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A source is sent, a sink is filled with what comes; with both, the program copies on its own node."""

    source: EndOrder | None = None
    sink: EndOrder | None = None
    size: int
    limit: int = 0
    compress: str = "none"
    level: int = 0
    """The sender compresses frame by frame; a level of zlib."""
    sha256: str = ""
    """What the receiver's data must have; '': any."""
    digests: bool = False
    """The sender returns the digest of its data."""
    sealed: bool = True
    """The sender seals its frames; not if the receiver knows the digest of the data."""
    form: str = DUMP
    """`raw`, `script` or `dump`."""
    hold: bool = False
    """Answer the sender only after `.commit`: it may remove its data then."""
    wait_s: float = 60.0
    """How long the receiver waits for its sender."""
    silence_s: float = 600.0
    """How long the other end may say nothing while data moves."""
    wire: str = "frames"
    """How both ends talk, by its name in `wires.py`."""
    token: str = ""
    address: str = ""
    port: int = 0
    certificate: str = ""
    key: str = ""
    peer: str = ""
    """The file of what is trusted to have made the other end's certificate: that itself, or an authority."""
    fingerprint: str = ""
    """Of the other end's certificate; '': `peer` is that certificate."""

    @property
    def tls(self) -> "TlsFiles":
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.peer), self.fingerprint)

    @property
    def total(self) -> int:
        """How much is moved, 0 if a script decides."""
        return 0 if any(end and end.argv for end in (self.source, self.sink)) else self.size


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: the own certificate and key, what is trusted; and which certificate the other end must have."""

    certificate: Path
    key: Path
    peer: Path
    fingerprint: str = ""

    @property
    def expected(self) -> str:
        """The fingerprint of the only certificate that is accepted."""
        if self.fingerprint:
            return self.fingerprint
        return fingerprint_of_der(ssl.PEM_cert_to_DER_cert(self.peer.read_text("ascii")))


def order_file(directory: Path, token: str, role: str) -> Path:
    """Return the order of one end below a directory; both ends may be on one node."""
    name = hashlib.sha256(token.encode()).hexdigest()[:32]
    return directory / f"{name}-{role}" / FILE
