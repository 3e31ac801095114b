"""Opcodes about exports of instances, and moves of instances to other clusters."""

from typing import Annotated, Any, ClassVar

from ganeti.model.compression import COMPRESSIONS
from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import OpCode, ShutdownTimeout
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OnInstance
from ganeti.model.operation import Argument, Command, Parameter, Rest, Value

LOCAL, REMOTE = "local", "remote"


class OpBackupPrepare(OnInstance, frozen=True, kw_only=True, tag="OP_BACKUP_PREPARE"):
    """Prepare an export. For `remote`, the result is a key and its signed certificate; for `local`, it is empty."""

    mode: Annotated[str, RefersTo.NOTHING]

    no_loss: ClassVar[str] = "creates a key"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/prepare-export", (
            Parameter("mode", Value.TEXT, "local or remote", "mode", is_required=True),
        ), summary="Prepare an export", has_body=False),
    )  # fmt: skip


class OpBackupAbandon(OnInstance, frozen=True, kw_only=True, tag="OP_BACKUP_ABANDON"):
    """Cancel a prepared move to another cluster: remove its key from the instance's node (S241)."""

    x509_key_name: Annotated[list[Any], RefersTo.NOTHING]

    no_loss: ClassVar[str] = "removes only the key of a cancelled move"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/abandon-export",
            summary="Remove the key of a prepared move to another cluster"),
    )  # fmt: skip


class OpBackupExport(OnInstance, frozen=True, kw_only=True, tag="OP_BACKUP_EXPORT"):
    """Write the disks of an instance to an export on a node, or send them to another cluster.

    `target_node` is the name of a node. For `remote` it is a list of addresses with ports, one for each disk.
    """

    compress: Annotated[str, Field(
        "compress the dumps; upstream Ganeti reads only none", choices=tuple(COMPRESSIONS)
    ), RefersTo.NOTHING] = "none"  # fmt: skip
    ova: Annotated[bool, Field(
        "also pack the export as NAME.ova in its directory; copies the disks unchanged"
    )] = False  # fmt: skip
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S
    target_node: Annotated[str | list[Any] | None, RefersTo.DESTINATION] = None
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    shutdown: Annotated[bool, Field(
        "export the running guest; needs storage with snapshots", "! --noshutdown", form=Form.OFF
    )] = True  # fmt: skip
    remove_instance: Annotated[bool, Field("remove the instance after the export")] = False
    ignore_remove_failures: Annotated[
        bool, Field("continue if a part of the instance cannot be removed")
    ] = False
    mode: Annotated[str, RefersTo.NOTHING] = LOCAL
    x509_key_name: Annotated[list[Any] | None, RefersTo.NOTHING] = None
    destination_x509_ca: Annotated[str | None, RefersTo.NOTHING] = None
    zero_free_space: bool = False
    zeroing_timeout_fixed: int | None = None
    zeroing_timeout_per_mib: float | None = None
    long_sleep: Annotated[bool, Field(
        "keep the guest down during the whole export, even if the storage has snapshots"
    )] = False  # fmt: skip

    no_loss: ClassVar[str] = (
        "replaces an older export once the new one is complete; removes the instance only on request"
    )
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/export",
            summary="Export an instance", renamed={"destination": "target_node"}),
    )  # fmt: skip


class OpBackupRemove(OnInstance, frozen=True, kw_only=True, tag="OP_BACKUP_REMOVE"):
    """Remove the exports of an instance from all nodes. The instance need not exist any more."""

    no_loss: ClassVar[str] = "the name of the command announces the removal of the export"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/instances/{instance}/export", summary="Remove an instance's export", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "remove",
        (Argument("instance_name", "name of the instance, which need not exist any more"),),
        doc="Remove the exports of an instance from all nodes.",
    )  # fmt: skip


class OpBackupVerify(OnInstance, frozen=True, kw_only=True, tag="OP_BACKUP_VERIFY"):
    """Compare the dumps of an instance's exports with their digests. The instance need not exist any more.

    The result is a list of `node`, `disk`, `file` and `problem`, which is empty for a dump with exactly the exported
    data. The job fails if a dump is damaged or missing, or has no digest.
    """

    no_loss: ClassVar[str] = "reads the exports"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/verify-export", summary="Compare an instance's exports with their digests",
            has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-backup", "verify",
        (Argument("instance_name", "name of the instance, which need not exist any more"),),
        lines=lambda _op, found: [f"{one['node']}: disk {one['disk']} is good" for one in found],
        doc="""Read the exports of an instance on all nodes, and compare each disk with its digest.

        The command names each dump that is damaged or missing, and then ends with an error. Exports of upstream Ganeti
        have no digests, so they cannot be verified.
        """,
    )  # fmt: skip


class OpBackupQuery(OpCode, frozen=True, kw_only=True, tag="OP_BACKUP_QUERY"):
    """Map the names of nodes (default: all nodes) to the names of their exports, or to false."""

    nodes: Annotated[list[str], RefersTo.NODE] = []
    use_locking: bool = False

    host_changing: ClassVar[bool] = False
