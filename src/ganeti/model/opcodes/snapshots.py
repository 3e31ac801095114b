"""Opcodes about snapshots of an instance's disks."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import ShutdownTimeout
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OnInstance
from ganeti.model.operation import DRY_RUN, Loss, Rest

_PATH = "/2/instances/{instance}/snapshots"
_OF_PATH = {"snapshot": "snapshot"}


def _ask_rollback(ops: Sequence[Any]) -> str:
    return "\n".join(
        f"Roll {op.instance_name} back to snapshot {op.snapshot}, and lose all later data on its disks?"
        for op in ops
    )


def _ask_removal(ops: Sequence[Any]) -> str:
    return "\n".join(f"Remove snapshot {op.snapshot} of {op.instance_name}?" for op in ops)


class OpInstanceSnapshotCreate(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SNAPSHOT_CREATE"
):
    """Take a snapshot of all disks of an instance at the same moment, also while its guest runs.

    A running guest is paused for that moment. An agent in the guest first freezes the file systems. The result has
    the name, and the consistency: `down` (the guest was down), `agent`, `crash` (as after a loss of power), or
    `memory` (the guest's memory of the same moment was saved, too).
    """

    snapshot: Annotated[str | None, RefersTo.NOTHING] = None
    """Its name; default: the time, as 20261124-180500 (UTC)."""
    memory: Annotated[
        bool, Field("save the memory of the running guest, too, so that a rollback continues it")
    ] = False

    no_loss: ClassVar[str] = "keeps the disks"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", _PATH, (DRY_RUN,), summary="Take a snapshot of an instance's disks",
            name="instances_name_snapshots"),
    )  # fmt: skip


class OpInstanceSnapshotRollback(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SNAPSHOT_ROLLBACK"
):
    """Give the disks of an instance the content of a snapshot; the snapshot and all others are kept.

    If the snapshot has the memory of the guest, the guest then continues from that moment.
    """

    snapshot: Annotated[str, RefersTo.NOTHING]
    stop: Annotated[
        bool, Field("shut a running guest down first, and start it again afterwards")
    ] = False
    no_memory: Annotated[
        bool, Field("roll back only the disks of a snapshot that has the guest's memory")
    ] = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S

    loss: ClassVar[Loss | None] = Loss(_ask_rollback)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_PATH}/{{snapshot}}/rollback", (DRY_RUN,),
            summary="Roll an instance's disks back to a snapshot", path_fields=_OF_PATH,
            name="instances_name_snapshots_name_rollback"),
    )  # fmt: skip


class OpInstanceSnapshotRemove(
    OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_SNAPSHOT_REMOVE"
):
    """Remove a snapshot of an instance; the disks keep their content."""

    snapshot: Annotated[str, RefersTo.NOTHING]

    loss: ClassVar[Loss | None] = Loss(_ask_removal)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", f"{_PATH}/{{snapshot}}", (DRY_RUN,),
            summary="Remove a snapshot of an instance", path_fields=_OF_PATH,
            name="instances_name_snapshots_name", has_body=False),
    )  # fmt: skip
