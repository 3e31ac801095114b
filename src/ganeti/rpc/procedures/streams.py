"""Procedures that carry the data of one disk from a node to another, or within a node.

One end listens and one sends. Each has a key that is made for this transfer only, and accepts
exactly the other's certificate; a token binds the connection to the disk. The receiver confirms
only after it has synced everything, and its digest equals the sender's.
"""

from typing import Annotated

import msgspec

from ganeti.model.instance_spec import DiskSpec, InstanceSpec, OsFacts
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, Message, Nothing, Procedure


class TransferKeyArgs(Message, frozen=True, kw_only=True):
    """A key of this name, `x509-` and letters or digits, for an instance's transfer."""

    instance_name: str
    key_name: str


class TransferCertificate(Message, frozen=True, kw_only=True):
    """The certificate in PEM form; its key never leaves the node (S210)."""

    certificate: str


class DiskEnd(Message, frozen=True, kw_only=True):
    """A disk of an instance; read or written by a script of its OS, or directly if `os` is ''."""

    instance: InstanceSpec
    index: int
    os: str = ""
    osparams: dict[str, str] = {}
    snapshot: str = ""
    """The path of a snapshot to read instead of the disk, in the format of the disk."""
    debug: int = 0
    facts: OsFacts = OsFacts()
    changes: bool = False
    """Send only the changed blocks, for a backup: all that are not zero, or those that differ from `sums`."""
    sums: str = ""
    """The token of the transfer that brought sums of blocks to this node; '': none."""
    moment: str = ""
    """The socket of QEMU that shows the disk as it was at one moment; '': the guest is down. Without `changes`, all of
    the disk is sent."""
    bitmap: str = ""
    """Send only the blocks of this bitmap of QEMU."""
    holds_data: bool = False
    """True if a receiving disk may have other data, which zeros must replace."""


class DumpEnd(Message, frozen=True, kw_only=True):
    """A file of an export; of an unfinished export if `unfinished`."""

    export: str
    file: str
    unfinished: bool = False
    stored: bool = False
    """In the image store of the node."""


class PointEnd(Message, frozen=True, kw_only=True):
    """A disk in a backup: a sender reads it, a receiver writes its new image from changed blocks."""

    target: str
    instance: str
    """Name of the instance, and of the directory below the target."""
    point: str
    disk: str
    size: int
    """Bytes; a sender adds zeros to that of a smaller disk."""
    parent: str = ""
    """Of a new image: the backup that has the other blocks; '': none."""
    sums: bool = False
    """Of a sender: send the sums of the blocks."""
    keys: BackupKeys = NO_BACKUP_KEYS


class SumsEnd(Message, frozen=True, kw_only=True):
    """A temporary file for the sums of a disk's blocks; the token of the transfer names it."""


class EndArgs(Message, frozen=True, kw_only=True):
    """Exactly one of the fields is set."""

    disk: DiskEnd | None = None
    dump: DumpEnd | None = None
    point: PointEnd | None = None
    sums: SumsEnd | None = None


class _End(EndArgs, frozen=True, kw_only=True):
    """One end of a transfer. `peer` is the peer's certificate, in PEM form."""

    instance_name: str
    token: str
    key_name: str
    peer: str
    address: str
    size: int
    """Expected number of bytes, for the progress."""
    silence_s: float = 600.0
    """Time that the peer may be silent while data moves."""


class ReceiveArgs(_End, frozen=True, kw_only=True):
    """Wait at `address`.

    `unpack` is the compression to undo, `sha256` the required digest of the data ('': any).
    """

    unpack: str = "none"
    sha256: str = ""
    limit: int
    """Maximum number of bytes, counted after decompression."""
    hold: bool = False
    """Do not confirm to the sender before `stream_commit`: it may then remove its data (G14)."""
    wait_s: int = 60
    """Time to wait for the sender."""


class Receiving(Message, frozen=True, kw_only=True):
    port: int
    sealed: bool = True
    """True if the sender must seal its frames; a node of an older version always requires it."""
    inflates: bool = False
    """True if frames may be compressed one by one; a node of an older version does not support it."""


class SendArgs(_End, frozen=True, kw_only=True):
    """Send to the receiver, compressed by `pack`; return the digest of the data if `digests`.

    Without `sealed` the receiver must have the digest.
    """

    port: int
    pack: str = "none"
    deflates: bool = False
    """Compress frame by frame, by the level of `pack`: zeros cost nothing."""
    digests: bool = False
    sealed: bool = True
    rate: int = 0
    """Limit in bytes a second; 0, and on a node of an older version: none."""


class CopyArgs(Message, frozen=True, kw_only=True):
    """Copy one open disk to another one of this node; `target` decides where zeros are written."""

    instance_name: str
    token: str
    source: DiskSpec
    target: DiskSpec


class WithinArgs(Message, frozen=True, kw_only=True):
    """Move data from one end to another one of this node, without compression."""

    instance_name: str
    token: str
    source: EndArgs
    target: EndArgs
    size: int
    """Expected number of bytes, for the progress; of a disk that is copied as it is, the required one."""
    limit: int
    """Maximum number of bytes."""
    rate: int = 0
    """Limit in bytes a second; 0: none."""


class StreamResult(Message, frozen=True, kw_only=True):
    """Bytes before compression, and their digest if requested."""

    data_bytes: int
    sha256: str = ""
    seconds: float


class StreamArgs(Message, frozen=True, kw_only=True):
    instance_name: str
    token: str
    receives: bool
    """The end of a transfer: both may be on one node."""


class StreamStatus(Message, frozen=True, kw_only=True):
    """The progress of an end; `result` after success, `error` after a failure."""

    known: bool
    running: bool = False
    done: int = 0
    total: int = 0
    result: StreamResult | None = None
    error: str = ""


class OutputArgs(Message, frozen=True, kw_only=True):
    """Request for a script's output after `offset`; the call of this key runs the script."""

    key: str
    offset: int = 0


class Output(Message, frozen=True, kw_only=True):
    """Whole lines of text, and the offset of the next ones; `skipped` bytes were omitted."""

    text: Annotated[str, msgspec.Meta(max_length=1024 * 1024)] = ""
    offset: int = 0
    skipped: int = 0


class SnapshotArgs(Message, frozen=True, kw_only=True):
    """A snapshot of a disk, by a name of letters, digits and `-`."""

    instance_name: str
    disk: DiskSpec
    name: str
    unsure: bool = True
    """False: the snapshot was made, so a removal that cannot find it is an error."""


class CanSnapshot(Message, frozen=True, kw_only=True):
    possible: bool


class SnapshotTaken(Message, frozen=True, kw_only=True):
    """The path of the snapshot's data."""

    path: str


class DiskOf(Message, frozen=True, kw_only=True):
    instance_name: str
    disk: DiskSpec


TRANSFER_KEY_CREATE = Procedure(
    "transfer_key_create", TransferKeyArgs, TransferCertificate, NORMAL_S, changes=True
)

TRANSFER_KEY_REMOVE = Procedure(
    "transfer_key_remove", TransferKeyArgs, Nothing, NORMAL_S, changes=True
)

STREAM_RECEIVE = Procedure("stream_receive", ReceiveArgs, Receiving, NORMAL_S, changes=True)

STREAM_SEND = Procedure("stream_send", SendArgs, StreamResult, HOURS_S, changes=True, is_long=True)

STREAM_COPY = Procedure("stream_copy", CopyArgs, StreamResult, HOURS_S, changes=True, is_long=True)

STREAM_WITHIN = Procedure(
    "stream_within", WithinArgs, StreamResult, HOURS_S, changes=True, is_long=True
)

STREAM_STATUS = Procedure("stream_status", StreamArgs, StreamStatus, NORMAL_S, changes=False)

STREAM_COMMIT = Procedure("stream_commit", StreamArgs, Nothing, NORMAL_S, changes=True)

STREAM_END = Procedure("stream_end", StreamArgs, Nothing, NORMAL_S, changes=True)

SCRIPT_OUTPUT = Procedure("script_output", OutputArgs, Output, NORMAL_S, changes=False)

SNAPSHOT_POSSIBLE = Procedure("snapshot_possible", DiskOf, CanSnapshot, NORMAL_S, changes=False)

SNAPSHOT_TAKE = Procedure("snapshot_take", SnapshotArgs, SnapshotTaken, NORMAL_S, changes=True)

SNAPSHOT_DROP = Procedure("snapshot_drop", SnapshotArgs, Nothing, NORMAL_S, changes=True)
