"""Opcodes about the places of nodes where disks are kept."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import NODE, Argument, Command, Loss, Parameter, Rest, Value

StorageType = Annotated[str | None, Field(
    "kind of storage: lvm-vg, lvm-pv, file, sharedfile; default: that of the first enabled disk template", "! -t --storage-type", "KIND"
), RefersTo.NOTHING]  # fmt: skip


STORAGE_TYPE = Parameter("storage_type", Value.TEXT, "as file or lvm-vg", "storage_type")
STORAGE_NAME = Parameter("name", Value.TEXT, "of the storage unit", "name", is_required=True)


class OpNodeQueryStorage(OpCode, frozen=True, kw_only=True, tag="OP_NODE_QUERY_STORAGE"):
    """The storage units of nodes: a row for each, with the fields that are asked for (S2, S96)."""

    output_fields: Annotated[list[str], RefersTo.NOTHING]
    storage_type: StorageType = None
    nodes: Annotated[list[str], RefersTo.NODE] = []
    """All that are online without names."""
    name: Annotated[str | None, RefersTo.STORAGE] = None
    """Only this unit."""

    host_changing: ClassVar[bool] = False
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("GET", "/2/nodes/{node}/storage", (
            STORAGE_TYPE,
            Parameter("output_fields", Value.WORDS, "names of fields, with commas", "output_fields"),
        ), summary="List a node's storage units", path_fields={"node": "nodes"}, has_body=False),
    )  # fmt: skip


class OnStorageUnit(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode that is about one storage unit of a node."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    storage_type: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str, RefersTo.STORAGE]

    summary_field: ClassVar[str | None] = "node_name"


class OpNodeModifyStorage(OnStorageUnit, frozen=True, kw_only=True, tag="OP_NODE_MODIFY_STORAGE"):
    """Change a storage unit (S4, S5): `allocatable`, or `present` to make or delete one."""

    changes: Annotated[dict[str, Any], RefersTo.CLUSTER]

    no_loss: ClassVar[str] = "removes a directory only if it is empty"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/nodes/{node}/storage/modify", (
            STORAGE_TYPE,
            STORAGE_NAME,
            Parameter("allocatable", Value.FLAG, "whether space is taken from it"),
        ), summary="Change a storage unit", has_body=False),
    )  # fmt: skip


def _ask_repair(ops: Sequence[Any]) -> str | None:
    if not ops[0].ignore_consistency:
        return None  # the job refuses where data would be lost
    return f"Give up what lay on lost devices of {ops[0].name} on {ops[0].node_name}?"


class OpRepairNodeStorage(OnStorageUnit, frozen=True, kw_only=True, tag="OP_REPAIR_NODE_STORAGE"):
    """Make a storage unit consistent; what lay on lost devices is given up (S6, S94)."""

    ignore_consistency: Annotated[
        bool, Field("continue although the only good copy of data is lost")
    ] = False

    loss: ClassVar[Loss | None] = Loss(_ask_repair)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/nodes/{node}/storage/repair", (STORAGE_TYPE, STORAGE_NAME),
            summary="Repair a storage unit", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-node", "repair-storage",
        (
            NODE,
            Argument("storage_type", "kind of storage: lvm-vg, lvm-pv, file, sharedfile"),
            Argument("name", "a volume group, a device, a directory"),
        ),
        confirming=("force",),
        doc="""Make a storage unit consistent: a volume group gives up devices that are gone, and what lay on them.

        Refused if the node's mirrored instances have no good copy elsewhere, or others lost a part.
        """,
    )  # fmt: skip


class OpNodeQueryvols(OpCode, frozen=True, kw_only=True, tag="OP_NODE_QUERYVOLS"):
    """The logical volumes of nodes: a row for each, with the fields that are asked for."""

    output_fields: Annotated[list[str], RefersTo.NOTHING]
    nodes: Annotated[list[str], RefersTo.NODE] = []

    host_changing: ClassVar[bool] = False


class OpClusterRepairDiskSizes(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_REPAIR_DISK_SIZES"
):
    """Record the sizes that disks really have: of these instances, or of all."""

    instances: Annotated[list[str], RefersTo.INSTANCE] = []

    no_loss: ClassVar[str] = "records sizes, and keeps the disks"
