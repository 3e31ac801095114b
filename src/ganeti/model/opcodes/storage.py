"""Opcodes about the storage units of nodes, which hold disks."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import NODE, Argument, Command, Loss, Parameter, Rest, Value

StorageType = Annotated[str | None, Field(
    "kind of storage: lvm-vg, lvm-pv, lvm-thin, file, sharedfile; default: that of the first enabled disk template", "! -t --storage-type", "KIND"
), RefersTo.NOTHING]  # fmt: skip


STORAGE_TYPE = Parameter("storage_type", Value.TEXT, "for example file or lvm-vg", "storage_type")
STORAGE_NAME = Parameter("name", Value.TEXT, "of the storage unit", "name", is_required=True)


class OpNodeQueryStorage(OpCode, frozen=True, kw_only=True, tag="OP_NODE_QUERY_STORAGE"):
    """List the storage units of nodes: a row of the requested fields for each (S2, S96)."""

    output_fields: Annotated[list[str], RefersTo.NOTHING]
    storage_type: StorageType = None
    nodes: Annotated[list[str], RefersTo.NODE] = []
    """Names of nodes; default: all online nodes."""
    name: Annotated[str | None, RefersTo.STORAGE] = None
    """Name of the only storage unit to list."""

    host_changing: ClassVar[bool] = False
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("GET", "/2/nodes/{node}/storage", (
            STORAGE_TYPE,
            Parameter("output_fields", Value.WORDS, "names of fields, separated by commas", "output_fields"),
        ), summary="List a node's storage units", path_fields={"node": "nodes"}, has_body=False),
    )  # fmt: skip


class OnStorageUnit(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one storage unit of a node."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    storage_type: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str, RefersTo.STORAGE]

    summary_field: ClassVar[str | None] = "node_name"


class OpNodeModifyStorage(OnStorageUnit, frozen=True, kw_only=True, tag="OP_NODE_MODIFY_STORAGE"):
    """Change a storage unit (S4, S5): set `allocatable`, or create or delete it by `present`."""

    changes: Annotated[dict[str, Any], RefersTo.CLUSTER]

    no_loss: ClassVar[str] = "removes a directory only if it is empty"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/nodes/{node}/storage/modify", (
            STORAGE_TYPE,
            STORAGE_NAME,
            Parameter("allocatable", Value.FLAG, "whether new disks can use the unit"),
        ), summary="Change a storage unit", has_body=False),
    )  # fmt: skip


def _ask_repair(ops: Sequence[Any]) -> str | None:
    if not ops[0].ignore_consistency:
        return None  # The job refuses if data would be lost.
    return f"Abandon the data on lost devices of {ops[0].name} on {ops[0].node_name}?"


class OpRepairNodeStorage(OnStorageUnit, frozen=True, kw_only=True, tag="OP_REPAIR_NODE_STORAGE"):
    """Make a storage unit consistent; data on lost devices is abandoned (S6, S94)."""

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
            Argument("storage_type", "kind of storage: lvm-vg, lvm-pv, lvm-thin, file, sharedfile"),
            Argument("name", "volume group, device or directory"),
        ),
        confirming=("force",),
        doc="""Repair a storage unit: remove lost devices, and the data on them, from a volume group.

        Refused if a mirrored instance of the node has no good copy on another node, or if an instance that is not
        mirrored lost data.
        """,
    )  # fmt: skip


class OpNodeQueryvols(OpCode, frozen=True, kw_only=True, tag="OP_NODE_QUERYVOLS"):
    """List the logical volumes of nodes: a row of the requested fields for each."""

    output_fields: Annotated[list[str], RefersTo.NOTHING]
    nodes: Annotated[list[str], RefersTo.NODE] = []

    host_changing: ClassVar[bool] = False


class OpClusterRepairDiskSizes(
    OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_REPAIR_DISK_SIZES"
):
    """Correct the recorded sizes of the disks of instances (default: all instances)."""

    instances: Annotated[list[str], RefersTo.INSTANCE] = []

    no_loss: ClassVar[str] = "records sizes, and keeps the disks"
