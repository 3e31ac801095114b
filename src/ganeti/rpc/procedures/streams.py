"""Procedures that carry the data of one disk from a node to another, or within a node.

One end listens and one sends. Each has a key that is made for this transfer only, and accepts exactly
the other's certificate; a token binds the connection to the disk. The receiver says that it has all
only when what it wrote is synced, and its digest is that of what was sent.
"""

from typing import Annotated

import msgspec

from ganeti.model.instance_spec import DiskSpec, InstanceSpec, OsFacts
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, Message, Nothing, Procedure


class TransferKeyArgs(Message, frozen=True, kw_only=True):
    """A key of this name, `x509-` and letters or digits, for an instance's transfer."""

    instance_name: str
    key_name: str


class TransferCertificate(Message, frozen=True, kw_only=True):
    """The certificate in PEM form; its key never leaves the node (S210)."""

    certificate: str


class DiskEnd(Message, frozen=True, kw_only=True):
    """A disk of an instance; read or written by a script of its OS, or as it is if `os` is ''."""

    instance: InstanceSpec
    index: int
    os: str = ""
    osparams: dict[str, str] = {}
    snapshot: str = ""
    """The path of a snapshot, to be read instead of the disk."""
    debug: int = 0
    facts: OsFacts = OsFacts()


class DumpEnd(Message, frozen=True, kw_only=True):
    """A file of an export; of one that is still being made if `unfinished`."""

    export: str
    file: str
    unfinished: bool = False


class _End(Message, frozen=True, kw_only=True):
    """Exactly one of `disk` and `dump` is given. `peer` is the other's certificate, in PEM form."""

    instance_name: str
    token: str
    key_name: str
    peer: str
    address: str
    size: int
    """Bytes that are expected, for the progress."""
    disk: DiskEnd | None = None
    dump: DumpEnd | None = None
    silence_s: float = 600.0
    """How long the other end may say nothing while data moves."""


class ReceiveArgs(_End, frozen=True, kw_only=True):
    """Wait at `address`; `unpack` is the compression to undo, `sha256` what the data must have ('': any)."""

    unpack: str = "none"
    sha256: str = ""
    limit: int
    """More bytes than this are refused, counted after unpacking."""
    hold: bool = False
    """Do not tell the sender that all is well before `stream_commit`: what it sent may be removed then (G14)."""
    wait_s: int = 60
    """How long to wait for the sender."""


class Receiving(Message, frozen=True, kw_only=True):
    port: int
    sealed: bool = True
    """Whether the sender must seal its frames; a node of an older version wants it always."""
    inflates: bool = False
    """Whether frames may be compressed one by one; a node of an older version does not know that."""


class SendArgs(_End, frozen=True, kw_only=True):
    """Send to the receiver, compressed by `pack`; return the digest of the data if `digests`.

    Without `sealed` the receiver must have been told the digest.
    """

    port: int
    pack: str = "none"
    deflates: bool = False
    """Compress frame by frame, by the level of `pack`: zeros cost nothing."""
    digests: bool = False
    sealed: bool = True


class CopyArgs(Message, frozen=True, kw_only=True):
    """Copy one disk to another one of this node, both of which are open; `target` decides where zeros are written."""

    instance_name: str
    token: str
    source: DiskSpec
    target: DiskSpec


class StreamResult(Message, frozen=True, kw_only=True):
    """Bytes before compression, and their digest if it was wanted."""

    data_bytes: int
    sha256: str = ""
    seconds: float


class StreamArgs(Message, frozen=True, kw_only=True):
    instance_name: str
    token: str
    receives: bool
    """Which end is meant: both may be on one node."""


class StreamStatus(Message, frozen=True, kw_only=True):
    """How far an end has come; `result` once it has ended well, `error` once it has not."""

    known: bool
    running: bool = False
    done: int = 0
    total: int = 0
    result: StreamResult | None = None
    error: str = ""


class OutputArgs(Message, frozen=True, kw_only=True):
    """What a script has said beyond `offset`; it runs by the call of this key."""

    key: str
    offset: int = 0


class Output(Message, frozen=True, kw_only=True):
    """Whole lines of text, and where the next ones begin; `skipped` bytes were left out."""

    text: Annotated[str, msgspec.Meta(max_length=1024 * 1024)] = ""
    offset: int = 0
    skipped: int = 0


class SnapshotArgs(Message, frozen=True, kw_only=True):
    """A snapshot of a disk, by a name of letters, digits and `-`."""

    instance_name: str
    disk: DiskSpec
    name: str


class CanSnapshot(Message, frozen=True, kw_only=True):
    possible: bool


class SnapshotTaken(Message, frozen=True, kw_only=True):
    """Where the data of that moment is read."""

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

STREAM_STATUS = Procedure("stream_status", StreamArgs, StreamStatus, NORMAL_S, changes=False)

STREAM_COMMIT = Procedure("stream_commit", StreamArgs, Nothing, NORMAL_S, changes=True)

STREAM_END = Procedure("stream_end", StreamArgs, Nothing, NORMAL_S, changes=True)

SCRIPT_OUTPUT = Procedure("script_output", OutputArgs, Output, NORMAL_S, changes=False)

SNAPSHOT_POSSIBLE = Procedure("snapshot_possible", DiskOf, CanSnapshot, NORMAL_S, changes=False)

SNAPSHOT_TAKE = Procedure("snapshot_take", SnapshotArgs, SnapshotTaken, NORMAL_S, changes=True)

SNAPSHOT_DROP = Procedure("snapshot_drop", SnapshotArgs, Nothing, NORMAL_S, changes=True)
