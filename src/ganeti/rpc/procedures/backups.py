"""Procedures about incremental backups: directories of targets with images and manifests."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import Consistency
from ganeti.protocols.backup_proof import Judgement
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure


class PointDisk(Message, frozen=True, kw_only=True):
    """A disk in a backup: its UUID, and its bytes."""

    disk: str
    size: int


class PointInfo(Message, frozen=True, kw_only=True):
    """A backup of an instance, as its manifest describes it; or the reason why its manifest is unusable."""

    target: str
    instance: str
    point: str
    instance_uuid: str = ""
    time: float = 0
    parent: str = ""
    consistency: Consistency | None = None
    stored: int = 0
    """Bytes of its images."""
    disks: list[PointDisk] = []
    proof: Judgement = Judgement()
    problem: str = ""
    schedule: str = ""
    """UUID of the schedule that made it; '': none did, or an older version."""
    key_id: str = ""
    """The backup key, as the manifest says; '': not encrypted."""


class TargetInfo(Message, frozen=True, kw_only=True):
    """A directory for backups: the free space in MiB, and what is wrong with it."""

    target: str
    free: int = 0
    problem: str = ""


class BackupListing(Message, frozen=True, kw_only=True):
    """The targets of a node, and all backups in them, the oldest of an instance first."""

    targets: list[TargetInfo]
    points: list[PointInfo]


class BackupsOf(Message, frozen=True, kw_only=True):
    """The backups of an instance in a target, and the keys of encrypted ones."""

    target: str
    instance_name: str
    keys: BackupKeys = NO_BACKUP_KEYS


class BackupBegun(Message, frozen=True, kw_only=True):
    """The last backup, if there is one; and the free space in MiB."""

    last: PointInfo | None
    free: int
    encrypts: bool = False
    """Whether the node can encrypt: an older version ignores the keys of a call."""


class NewPoint(BackupsOf, frozen=True, kw_only=True):
    """A backup that is being made, by its name and the UUIDs of its disks."""

    point: str
    disks: list[str]


class CommitPoint(NewPoint, frozen=True, kw_only=True):
    """The rest of its manifest."""

    instance_uuid: str
    time: float
    parent: str
    consistency: Consistency
    description: str
    schedule: str = ""


class PointOf(BackupsOf, frozen=True, kw_only=True):
    """One backup."""

    point: str


class PointContent(Message, frozen=True, kw_only=True):
    """The description of the instance, and the backup."""

    description: str
    info: PointInfo


class PrunePoints(BackupsOf, frozen=True, kw_only=True):
    """Backups to remove, by name."""

    points: list[str]


class PointCheck(Message, frozen=True, kw_only=True):
    """What is wrong with a backup; empty if every disk can be restored exactly."""

    point: str
    problems: list[str] = []
    unrecorded: str = ""
    """Why the result is not in the proof of the backup."""


class MomentArgs(Message, frozen=True, kw_only=True):
    """A moment of a running guest: the bitmap of an earlier one ('' for none), and the one that begins now."""

    instance: InstanceSpec
    base: str
    bitmap: str
    limit_s: float = 60.0
    keep: bool = False
    """At the end: keep the new bitmap, because there is a backup of the moment."""


class MomentBegun(Message, frozen=True, kw_only=True):
    """Where the disks are shown; with `has_changes`, every disk has the bitmap `base`."""

    consistency: Consistency
    socket: str
    has_changes: bool


BACKUP_LIST = Procedure("backup_list", Nothing, BackupListing, SLOW_S, changes=False)

BACKUP_BEGIN = Procedure("backup_begin", BackupsOf, BackupBegun, SLOW_S, changes=True)
"""Complete interrupted changes and remove what they left behind, before a new backup."""

BACKUP_COMMIT = Procedure("backup_commit", CommitPoint, PointInfo, SLOW_S, changes=True)

BACKUP_ABANDON = Procedure("backup_abandon", NewPoint, Nothing, SLOW_S, changes=True)

BACKUP_INFO = Procedure("backup_info", PointOf, PointContent, NORMAL_S, changes=False)

BACKUP_PRUNE = Procedure("backup_prune", PrunePoints, Nothing, HOURS_S, changes=True, is_long=True)
"""Remove backups; their blocks that later backups need are merged into these."""

BACKUP_CHECK = Procedure(
    "backup_check", BackupsOf, list[PointCheck], HOURS_S, changes=True, is_long=True
)
"""Read all images and compare them with their digests; record the results in the proofs."""

MOMENT_BEGIN = Procedure("moment_begin", MomentArgs, MomentBegun, SLOW_S, changes=True)
"""Show the disks of a running guest as they are now, while it runs on."""

MOMENT_END = Procedure("moment_end", MomentArgs, Nothing, SLOW_S, changes=True)
"""Stop showing them. It may be repeated, and the guest may be gone."""
