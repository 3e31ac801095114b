"""Opcodes about incremental backups of instances."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.instance import OnInstance
from ganeti.model.operation import DRY_RUN, INSTANCE, Argument, Command, Loss, Rest

_PATH = "/2/instances/{instance}/backups"
_ANY_INSTANCE = Argument("instance_name", "name of the instance, which need not exist any more")


AllowUnencrypted = Annotated[bool, Field(
    "read a backup that is not encrypted, although the cluster encrypts its backups"
)]  # fmt: skip


class OnBackups(OnInstance, frozen=True, kw_only=True):
    """Fields of every opcode about the backups of one instance in one directory."""

    node: Annotated[str | None, Field(
        "node with the backups; default: the only one that has some of the instance", "-n", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip
    target: Annotated[str | None, Field(
        "directory for backups on that node; default: the one in use, or /srv/ganeti/backup", metavar="DIRECTORY"
    ), RefersTo.PATH] = None  # fmt: skip


class OpBackupSave(OnBackups, frozen=True, kw_only=True, tag="OP_BACKUP_SAVE"):
    """Add a backup of an instance to a directory on a node.

    Only blocks that differ from the last backup there are written. The result has `point` (the name of the backup),
    `parent` (the one it is based on, or ""), `stored` (bytes) and `consistency`.
    """

    full: Annotated[bool, Field("write all blocks, independently of earlier backups")] = False
    encrypt: Annotated[bool | None, Field(
        "encrypt the backup; default: the cluster's parameter encrypt_backups", metavar="yes|no", form=Form.YES_NO
    )] = None  # fmt: skip
    bandwidth: Annotated[int, Field(
        "limit of the transferred data in MiB/s; 0 (the default): none", metavar="MIB"
    )] = 0  # fmt: skip

    schedule: Annotated[str | None, RefersTo.NOTHING] = None
    """UUID of the schedule that makes the backup, for its prunes."""

    no_loss: ClassVar[str] = "reads the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", _PATH, (DRY_RUN,), summary="Add a backup of an instance", name="instances_name_backups"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "save", (INSTANCE,),
        lines=lambda op, found: [
            f"Backup {found['point']} of {op.instance_name}: {found['stored'] / 1048576:.1f} MiB"
            + (f", based on {found['parent']}" if found["parent"] else "")
        ] if found["point"] else [],
        doc="""Add a backup of an instance to a directory on a node; only changed blocks are written.

        The first backup in a directory has all blocks that are not zero. Later ones have the blocks that differ from
        the last one. A guest that runs continues meanwhile: its disks are saved as they were at one moment, at which
        the guest is paused; an agent in the guest (use_guest_agent) first freezes the file systems. QEMU records the
        blocks that change after a backup, and only these are read for the next one, also after a live migration. If
        the guest is down, or was started again since the last backup, the node reads all of the disks, and compares
        checksums of their blocks with those of the backup.

        While a guest is saved, the node keeps the old content of blocks that the guest overwrites in
        /var/cache/ganeti. If less than 5 % of that file system is free, the backup fails; the guest is not affected.

        A backup is a qcow2 image for each disk, whose backing file is the image of the backup before, and a manifest
        with the SHA-256 of each 4 MiB. qemu-img alone can read the images. A backup appears completely, or not at all.

        The directory is /srv/ganeti/backup, or one that /etc/ganeti/backup-paths on the node lists, one a line; such
        a line replaces the default. It may be a mounted file system that several nodes or clusters share.
        """,
    )  # fmt: skip


def _ask_restore(ops: Sequence[Any]) -> str:
    return "\n".join(
        f"Give the disks of {op.instance_name} the content of {op.point or 'its last backup'}, and lose all later data"
        " on them?"
        for op in ops
    )


class OpBackupRestore(OnBackups, frozen=True, kw_only=True, tag="OP_BACKUP_RESTORE"):
    """Give the disks of an instance, which must be down, the content of a backup; with `live` it starts at once."""

    point: Annotated[str | None, Field(
        "the backup; default: the last one", metavar="BACKUP"
    ), RefersTo.NOTHING] = None  # fmt: skip
    disk: Annotated[int | None, Field(
        "restore only the disk with this number; default: all", metavar="N"
    )] = None  # fmt: skip
    allow_unencrypted: AllowUnencrypted = False
    live: Annotated[
        bool, Field("start the instance at once, and restore its disks while it runs")
    ] = False
    bandwidth: Annotated[int, Field(
        "limit of the transferred data in MiB/s, with --live for each disk; 0 (the default): none", metavar="MIB"
    )] = 0  # fmt: skip

    loss: ClassVar[Loss | None] = Loss(_ask_restore)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_PATH}/{{point}}/restore", (DRY_RUN,), summary="Restore the disks of an instance from a backup",
            path_fields={"point": "point"}, name="instances_name_backups_name_restore"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "restore", (INSTANCE,), confirming=("force",),
        lines=lambda op, found: [f"Restored {op.instance_name} from backup {found['point']}"] if found["point"] else [],
        doc="""Give the disks of an instance the content of a backup. The instance must be down.

        Every part of the images is compared with its SHA-256 before it is used. Disks that are newer than the backup
        keep their content. After an interrupted restore the disks are a mixture, so the instance cannot start before
        a restore has completed. The command asks for confirmation; --force skips the prompt.

        With --live the instance starts at once: it reads its blocks from the backup, and what it writes is kept in
        /var/lib/ganeti/live-restores on its node until its own disks have everything. Then it changes to these, in a
        pause of less than a second as a rule, and nothing refers to the backup any more. If the backup is out of
        reach for longer than 30 s, the guest stops and gets no error. After an interruption, also of the guest
        itself, nothing that it has written is lost: repeat the command, which continues. Until it has completed, the
        instance cannot be started otherwise, moved or changed, and its backup is not pruned. To abandon what the
        guest has written, shut it down and restore it without --live.

        To restore a backup as a new instance, use gnt-backup import with --backup.
        """,
    )  # fmt: skip


class OpBackupPrune(OnBackups, frozen=True, kw_only=True, tag="OP_BACKUP_PRUNE"):
    """Remove backups of an instance, except those that a rule keeps. The instance need not exist any more.

    Each `keep_` number keeps the last backup of so many hours, days, weeks, months and years (UTC) that have one;
    `keep_last` keeps the newest ones. The newest backup is always kept, and the newest good one. The result has `removed` and `kept`.
    """

    keep_last: Annotated[int, Field("keep the last N backups", metavar="N")] = 0
    keep_hourly: Annotated[int, Field("keep the last backup of N hours", metavar="N")] = 0
    keep_daily: Annotated[int, Field("keep the last backup of N days", metavar="N")] = 0
    keep_weekly: Annotated[int, Field("keep the last backup of N weeks", metavar="N")] = 0
    keep_monthly: Annotated[int, Field("keep the last backup of N months", metavar="N")] = 0
    keep_yearly: Annotated[int, Field("keep the last backup of N years", metavar="N")] = 0
    schedule: Annotated[str | None, Field(
        "apply the rules also to the backups that this schedule has left on other nodes or in other directories",
        metavar="SCHEDULE"
    ), RefersTo.CLUSTER] = None  # fmt: skip

    no_loss: ClassVar[str] = "removes only the backups that no rule of the request keeps"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_PATH}/prune", (DRY_RUN,), summary="Remove old backups of an instance",
            name="instances_name_backups_prune"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "prune", (_ANY_INSTANCE,),
        lines=lambda _op, found: [
            *(f"keep {one['point']}: {', '.join(one['why'])}" for one in found["kept"]),
            *(f"remove {name}" for name in found["removed"]),
        ],
        needs_option=True,
        doc="""Remove backups of an instance that no rule keeps.

        Each rule keeps the last backup of so many hours, days, weeks, months or years that have one, counted in UTC;
        --keep-last keeps the newest. At least one rule is required. The newest backup is always kept, and so is the
        newest one that a check or a drill has proved to be good. --dry-run only shows the decision.

        With --schedule, the rules apply to all these backups and those that the schedule has made elsewhere, for example
        on the former node of an instance that has moved. A schedule does so itself.

        Blocks that later backups need are merged into these before a backup is removed. An interrupted prune loses
        nothing: the next change of these backups completes it.
        """,
    )  # fmt: skip


class OpBackupCheck(OnBackups, frozen=True, kw_only=True, tag="OP_BACKUP_CHECK"):
    """Compare the backups of an instance with their digests. The instance need not exist any more.

    The result is a list of `point` and `problems`, which is empty for a backup that can be restored exactly. The job
    fails if a backup has problems.
    """

    no_loss: ClassVar[str] = "reads the backups"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_PATH}/check", summary="Compare an instance's backups with their digests",
            name="instances_name_backups_check"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "check", (_ANY_INSTANCE,),
        lines=lambda _op, found: [f"{one['point']} can be restored" for one in found],
        doc="""Read all backups of an instance in a directory, and compare each part with its SHA-256.

        The command names each damaged or missing part, and the backups that can still be restored. It then ends with
        an error. The result is recorded beside each backup; gnt-backup points shows it.
        """,
    )  # fmt: skip
