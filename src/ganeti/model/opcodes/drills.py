"""The opcode that boots a backup of an instance."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.points import AllowUnencrypted, OnBackups
from ganeti.model.operation import Argument, Command, Rest


class OpBackupDrill(OnBackups, frozen=True, kw_only=True, tag="OP_BACKUP_DRILL"):
    """Boot a backup in a throw-away guest without a network. The instance need not exist any more.

    The result has `point`, `seen` (the sign of life), `seconds` until it, `lines` (the end of the console), `memory`
    in MiB and `accelerator`. The job fails if the backup is damaged, or the guest gives no sign of life.
    """

    point: Annotated[str | None, RefersTo.NOTHING] = None
    """The backup; None: the last one."""
    memory: Annotated[int | None, Field(
        "memory of the guest in MiB; default: that of the instance, or less if the node has less than twice as much"
        " free", metavar="MIB"
    )] = None  # fmt: skip
    timeout: Annotated[int, Field("seconds to wait for the sign of life", metavar="SECONDS")] = 300
    expect: Annotated[str, Field(
        "text to wait for on the serial console; not a pattern", metavar="TEXT"
    ), RefersTo.NOTHING] = "login:"  # fmt: skip
    agent: Annotated[bool, Field("wait for the answer of QEMU's agent in the guest instead")] = (
        False
    )

    allow_unencrypted: AllowUnencrypted = False

    no_loss: ClassVar[str] = "the guest writes to temporary images"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/backups/{point}/drill",
            summary="Boot a backup of an instance in a throw-away guest", path_fields={"point": "point"},
            name="instances_name_backups_name_drill"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "drill",
        (Argument("instance_name", "name of the instance, which need not exist any more"),
         Argument("point", "the backup; default: the last one", nargs="?")),
        lines=lambda op, found: [
            *(f"  {line}" for line in found["lines"]),
            (
                f"Backup {found['point']} of {op.instance_name} boots: {found['seen']!r} after"
                f" {found['seconds']:.1f} s ({found['memory']} MiB, {found['accelerator']})"
            ),
        ],
        doc="""Boot a backup in a throw-away guest, on the node that has it, and wait for a sign of life.

        Every image is first compared with its digests, as by gnt-backup check. The guest has no network, no device of
        the host, and a serial console. It writes to temporary images above those of the backup, which do not change.
        QEMU runs as a user of its own in the confinement of machine images. The guest is not an instance: it has
        another UUID and no MAC address, and it ends with the job, whatever happens. Drills of one node wait for each
        other.

        The machine is that of the instance, or of the backup if the instance does not exist any more: processors,
        disks, firmware and kernel, but no parameter that names other files, devices or networks of the host. UEFI
        firmware begins without boot entries.

        The sign of life is a text on the serial console (--expect) or an answer of the agent in the guest (--agent).
        The result is recorded beside the backup; gnt-backup points shows it. Once a drill of a backup was requested,
        that backup is good only after a successful drill.
        """,
    )  # fmt: skip
