"""Opcodes that inspect and repair mirrored disks."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import EarlyRelease, OpCode
from ganeti.model.opcodes.group import OnGroup
from ganeti.model.opcodes.instance import OnInstance, instance_names
from ganeti.model.operation import DRY_RUN, Loss, Rest


class OpClusterVerifyDisks(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_DISKS"):
    """Verify the disks of all instances by one job for each node group."""

    group_name: Annotated[
        str | None, Field("only this group", "! -g --node-group", "GROUP"), RefersTo.GROUP
    ] = None
    is_strict: bool = False

    host_changing: ClassVar[bool] = False


class OpGroupVerifyDisks(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_VERIFY_DISKS"):
    """Verify the disks of a group's instances.

    The result is `[{node: error}, [instance], {instance: [[node, disk]]}]`: nodes that do not answer, instances
    whose disks need activation, and missing disks.
    """

    is_strict: bool = False

    host_changing: ClassVar[bool] = False


class OpInstanceDiskStatus(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_DISK_STATUS"):
    """Return the state of each disk of an instance on each of its nodes (S97): two objects a mirrored disk.

    Fields: `disk`, `node`, `primary`, `status` (a name of `model/mirror_states.py`), `path`, `size` in MiB,
    `percent`, `seconds_left`, `rate` in KiB/s, `state`, `problem`.
    """

    host_changing: ClassVar[bool] = False


def _ask_kept_copy(ops: Sequence[Any]) -> str | None:
    keep = ops[0].keep
    if not keep:
        return None  # The job replaces a disk only if the other copy has all data.
    return f"Keep the copy of {instance_names(ops)} on {keep}, and discard the writes that only the other copy has?"


class OpInstanceRepair(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REPAIR"):
    """Recreate broken disks of a mirrored instance on its primary node from the other copy (S98).

    After a split brain, `keep` names the node whose copy replaces the other copy.
    """

    early_release: EarlyRelease = False
    keep: Annotated[str | None, Field(
        "after a split brain, keep the copy of this node; discards the writes that only the other copy has",
        metavar="NODE",
    ), RefersTo.NODE] = None  # fmt: skip

    loss: ClassVar[Loss | None] = Loss(_ask_kept_copy)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/repair", (DRY_RUN,),
            summary="Recreate disks that are broken on the primary node from their other copies"),
    )  # fmt: skip


class OpNodeListDrbd(OpCode, frozen=True, kw_only=True, tag="OP_NODE_LIST_DRBD"):
    """List the mirrored devices of a node, from the configuration and from the node.

    A row is `[node, number, instance, disk/N, role, other node, state]`; instance and disk are empty for a device
    that is not in the configuration.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None

    summary_field: ClassVar[str | None] = "node_name"
    host_changing: ClassVar[bool] = False
