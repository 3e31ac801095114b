"""Opcodes about node groups."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode
from ganeti.model.params import Params


class OnGroup(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode that is about one node group."""

    group_name: str

    summary_field: ClassVar[str | None] = "group_name"


class OpGroupAdd(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_ADD"):
    """Make a node group, without nodes."""

    alloc_policy: str | None = None
    ndparams: Params | None = None
    diskparams: dict[str, Params] | None = None
    ipolicy: Params | None = None
    hv_state: Params | None = None
    disk_state: Params | None = None


class OpGroupRemove(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_REMOVE"):
    """Remove a node group that has no nodes."""


class OpGroupRename(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_RENAME"):
    """Give a node group another name."""

    new_name: str


class OpGroupSetParams(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_SET_PARAMS"):
    """Change a node group; None as a value of a parameter takes the cluster's again."""

    alloc_policy: str | None = None
    ndparams: Params | None = None
    diskparams: dict[str, Params] | None = None
    ipolicy: Params | None = None
    hv_state: Params | None = None
    disk_state: Params | None = None


class OpGroupAssignNodes(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_ASSIGN_NODES"):
    """Put nodes into a group; with `force` also where a mirrored instance would be in two groups then."""

    nodes: list[str]
    node_uuids: list[str] | None = None
    force: bool = False


class OpGroupEvacuate(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_EVACUATE"):
    """Move all instances of a group to other groups: a job for each."""

    early_release: bool = False
    iallocator: str | None = None
    target_groups: list[str] | None = None
    sequential: bool = False
    """Each job waits for the one before it."""
    force_failover: bool = False
    """Instances are stopped and started elsewhere, none migrates live."""

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpInstanceChangeGroup(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_CHANGE_GROUP"):
    """Move an instance to a node of another group, one of `target_groups` if some are named."""

    instance_name: str
    instance_uuid: str | None = None
    early_release: bool = False
    iallocator: str | None = None
    target_groups: list[str] | None = None

    summary_field: ClassVar[str | None] = "instance_name"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""
