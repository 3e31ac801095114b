"""Opcodes that look at mirrored disks, and mend them."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import EarlyRelease, OpCode
from ganeti.model.opcodes.group import OnGroup
from ganeti.model.opcodes.instance import OnInstance, instance_names
from ganeti.model.operation import DRY_RUN, Loss, Rest


class OpClusterVerifyDisks(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_VERIFY_DISKS"):
    """Look at the disks of all instances: submits a job for each node group."""

    group_name: Annotated[
        str | None, Field("only this group", "! -g --node-group", "GROUP"), RefersTo.GROUP
    ] = None
    is_strict: bool = False

    host_changing: ClassVar[bool] = False


class OpGroupVerifyDisks(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_VERIFY_DISKS"):
    """Look at the disks of a group's instances.

    The result is `[{node: why it does not answer}, [instance to activate], {instance: [[node, disk]]}]`:
    what is missing comes last.
    """

    is_strict: bool = False

    host_changing: ClassVar[bool] = False


class OpInstanceDiskStatus(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_DISK_STATUS"):
    """How each disk of an instance is on each of its nodes (S97): a list of objects, two a mirrored disk.

    Fields: `disk`, `node`, `primary`, `status` (a name of `model/mirror_states.py`), `path`, `size` in MiB,
    `percent`, `seconds_left`, `rate` in KiB/s, `state`, `problem`.
    """

    host_changing: ClassVar[bool] = False


def _ask_kept_copy(ops: Sequence[Any]) -> str | None:
    keep = ops[0].keep
    if not keep:
        return None  # disks are replaced only where the other copy has all data
    return f"Keep the copy of {instance_names(ops)} on {keep}, and lose the writes that only its other copy has?"


class OpInstanceRepair(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REPAIR"):
    """Make broken disks of a mirrored instance again on its primary node, filled from the other one (S98).

    With `keep`, choose a copy after a split brain: the other copy is replaced by that of the named node.
    """

    early_release: EarlyRelease = False
    keep: Annotated[str | None, Field(
        "after a split brain, keep the copy of this node; the writes that only the other copy has are lost",
        metavar="NODE",
    ), RefersTo.NODE] = None  # fmt: skip

    loss: ClassVar[Loss | None] = Loss(_ask_kept_copy)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances/{instance}/repair", (DRY_RUN,),
            summary="Replace disks that are broken on the primary node, from their other copies"),
    )  # fmt: skip


class OpNodeListDrbd(OpCode, frozen=True, kw_only=True, tag="OP_NODE_LIST_DRBD"):
    """The mirrored devices of a node, those of the configuration and those that it has: rows.

    `[node, number, instance, disk/N, role, other node, state]`; instance and disk are empty for what nobody owns.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None

    summary_field: ClassVar[str | None] = "node_name"
    host_changing: ClassVar[bool] = False
