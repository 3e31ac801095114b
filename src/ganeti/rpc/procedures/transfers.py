"""Procedures by which a master of the previous version copies a disk between two nodes.

Removed in the next release; the present master uses those of `streams.py`.
"""

from ganeti.model.instance_spec import DiskSpec
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, Message, Procedure


class DiskListenArgs(Message, frozen=True, kw_only=True):
    """Wait at `address` for a disk's data; `peer` is the fingerprint of the sender's certificate."""

    instance_name: str
    disk: DiskSpec
    address: str
    peer: str
    token: str


class DiskListening(Message, frozen=True, kw_only=True):
    """Address where the receiver listens."""

    port: int


class DiskSendArgs(Message, frozen=True, kw_only=True):
    """Send a disk's data to the waiting receiver; `compress` is one of `model.compression.COPIED`."""

    instance_name: str
    disk: DiskSpec
    address: str
    port: int
    peer: str
    token: str
    compress: str = "none"
    leaves_out_zeros: bool | None = None
    """True if unsent ranges of the new disk certainly read as zeros; None: like disks of this template."""


class DiskSent(Message, frozen=True, kw_only=True):
    """The sent bytes of data (zeros are omitted), the time, and the digest of both ends."""

    data_bytes: int
    seconds: float
    sha256: str


DISK_LISTEN = Procedure("disk_listen", DiskListenArgs, DiskListening, NORMAL_S, changes=True)

DISK_SEND = Procedure("disk_send", DiskSendArgs, DiskSent, HOURS_S, changes=True, is_long=True)
