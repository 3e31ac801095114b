"""Opcodes about node groups."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.names import AllocPolicy
from ganeti.model.opcodes.base import (
    EarlyRelease,
    ExpectedSerial,
    Iallocator,
    OpCode,
    TargetGroups,
)
from ganeti.model.operation import (
    DRY_RUN,
    FORCE,
    GROUP,
    INSTANCE,
    NEW_NAME,
    Argument,
    Command,
    Rest,
)
from ganeti.model.params import Params


class OnGroup(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one node group."""

    group_name: Annotated[str, RefersTo.GROUP]

    summary_field: ClassVar[str | None] = "group_name"


class GroupParams(OnGroup, frozen=True, kw_only=True):
    """Parameters of a node group; None keeps the present value, or that of the cluster."""

    alloc_policy: Annotated[str | None, Field(
        "whether allocators use the group: preferred, last_resort or unallocable", metavar="POLICY",
        choices=tuple(AllocPolicy)
    ), RefersTo.NOTHING] = None  # fmt: skip
    ndparams: Annotated[Params | None, Field(
        "node parameters; '-k' resets k to the cluster's value", "! --node-parameters", "k=v,...",
        Form.KEY_VALUES
    ), RefersTo.CLUSTER] = None  # fmt: skip
    beparams: Annotated[Params | None, Field(
        "recovery parameters and max_snapshots of the group's instances; '-k' resets k to the cluster's value",
        "! -B --backend-parameters", "k=v,...", Form.KEY_VALUES
    ), RefersTo.NOTHING] = None  # fmt: skip
    diskparams: Annotated[dict[str, Params] | None, Field(
        "parameters of a disk template; '-k' resets k to the cluster's value", "! -D --disk-parameters",
        "TEMPLATE:k=v,...", Form.NAMED
    ), RefersTo.CLUSTER] = None  # fmt: skip
    ipolicy: Annotated[
        Params | None,
        Field("limits for instances of the group", form=Form.POLICY),
        RefersTo.CLUSTER,
    ] = None
    hv_state: Annotated[Params | None, RefersTo.CLUSTER] = None
    disk_state: Annotated[Params | None, RefersTo.CLUSTER] = None


class OpGroupAdd(GroupParams, frozen=True, kw_only=True, tag="OP_GROUP_ADD"):
    """Create a node group without nodes."""

    group_name: Annotated[str, RefersTo.NEW_GROUP]

    no_loss: ClassVar[str] = "adds an entry to the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/groups", (DRY_RUN,), renamed={"name": "group_name"}),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-group",
        "add",
        (GROUP,),
        doc="Create a node group without nodes; assign-nodes adds nodes to it.",
    )


class OpGroupRemove(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_REMOVE"):
    """Remove a node group that has no nodes."""

    no_loss: ClassVar[str] = "removes a group without nodes"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/groups/{group}", (DRY_RUN,), summary="Remove a node group", has_body=False),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command("gnt-group", "remove", (GROUP,))


class OpGroupRename(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_RENAME"):
    """Rename a node group."""

    new_name: Annotated[str, RefersTo.NEW_GROUP]

    summary_field: ClassVar[str | None] = None
    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (Rest("PUT", "/2/groups/{group}/rename", (DRY_RUN,)),)
    cli: ClassVar[Command | None] = Command("gnt-group", "rename", (GROUP, NEW_NAME))


def _modified(op: Any, changes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    yield f"Modified group {op.group_name}"
    for name, value in changes:
        yield from (f" - {key:<5} -> {one}" for key, one in _leaves(name, value))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of nested parameters, for example `ndparams/spindle_count`."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(f"{name}/{key}", one)
    else:
        yield name, "default" if value is None else value


class OpGroupSetParams(GroupParams, frozen=True, kw_only=True, tag="OP_GROUP_SET_PARAMS"):
    """Change a node group; the value None of a parameter restores that of the cluster."""

    expected_serial: ExpectedSerial = None

    no_loss: ClassVar[str] = "changes parameters"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/groups/{group}/modify",
            renamed={f"custom_{name}": name for name in ("ndparams", "beparams", "ipolicy", "diskparams")}),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-group", "modify", (GROUP,), needs_option=True, lines=_modified,
        doc="""Change a group's allocation policy, parameters and instance policy.

        Parameters without an option keep their values; 'default' restores a part of the cluster's policy.
        """,
    )  # fmt: skip


class OpGroupAssignNodes(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_ASSIGN_NODES"):
    """Move nodes to a group; `force` allows mirrored instances with nodes in two groups."""

    nodes: Annotated[list[str], RefersTo.NODE]
    node_uuids: Annotated[list[str] | None, RefersTo.NODE] = None
    force: bool = False

    no_loss: ClassVar[str] = "changes entries of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/groups/{group}/assign-nodes", (DRY_RUN, FORCE)),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-group", "assign-nodes",
        (GROUP, Argument("nodes", "nodes to move to the group", "+", "node")), confirming=("force",),
        doc="""Move nodes to a group.

        --force allows mirrored instances with nodes in two groups.
        """,
    )  # fmt: skip


class OpGroupEvacuate(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_EVACUATE"):
    """Move all instances of a group to other groups by one job for each."""

    early_release: EarlyRelease = False
    iallocator: Iallocator = None
    target_groups: TargetGroups = None
    sequential: Annotated[bool, Field("move the instances one after the other")] = False
    force_failover: Annotated[bool, Field("fail over instead of live migration")] = False

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""
    cli: ClassVar[Command | None] = Command(
        "gnt-group", "evacuate", (GROUP,), confirming=("force",),
        question=lambda op: f"Evacuate all instances of group {op.group_name}?",
        doc="Move all instances of a group to other groups; an allocator chooses the nodes.",
    )  # fmt: skip


class OpInstanceChangeGroup(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_CHANGE_GROUP"):
    """Move an instance to a node of another group; `target_groups` limits the choice."""

    instance_name: Annotated[str, RefersTo.INSTANCE]
    instance_uuid: Annotated[str | None, RefersTo.INSTANCE] = None
    early_release: EarlyRelease = False
    iallocator: Iallocator = None
    target_groups: TargetGroups = None

    summary_field: ClassVar[str | None] = "instance_name"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "change-group", (INSTANCE,), confirming=("force",),
        question=lambda op: f"Move instance {op.instance_name} to another group?",
        doc="Move an instance to another group; an allocator chooses the node.",
    )  # fmt: skip
