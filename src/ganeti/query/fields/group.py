"""Fields of node groups."""

from dataclasses import dataclass

from ganeti.config import fill
from ganeti.model.objects import Instance, NodeGroup
from ganeti.model.param import Param
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    GROUP_BACKEND_PARAMS,
    NODE_DEFAULTS,
    NODE_PARAMS,
    Params,
    layered,
)
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import Field, ValueKind, kind_of_param
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields


@dataclass(frozen=True)
class GroupRow:
    """One node group in its context."""

    context: QueryContext
    group: NodeGroup

    @property
    def node_names(self) -> list[str]:
        return sorted(node.name for node in self.context.members.get(self.group.uuid, ()))

    @property
    def instances(self) -> list[Instance]:
        """Instances whose primary node is in the group."""
        return [
            instance
            for node in self.context.members.get(self.group.uuid, ())
            for instance in self.context.primaries.get(node.uuid, ())
        ]


def _ndparams(row: GroupRow) -> Params:
    return layered(NODE_DEFAULTS, row.context.snapshot.cluster.ndparams, row.group.ndparams)


def _beparams(row: GroupRow) -> Params:
    of_cluster = row.context.snapshot.cluster.beparams.get(fill.DEFAULT, {})
    filled = layered(BACKEND_DEFAULTS, of_cluster, row.group.beparams)
    return {name: filled[name] for name in GROUP_BACKEND_PARAMS}


_FIELDS: tuple[Field[GroupRow], ...] = (
    Field("name", "Group", ValueKind.TEXT, "Name of the group", lambda r: r.group.name),
    Field(
        "alloc_policy",
        "AllocPolicy",
        ValueKind.TEXT,
        "Whether allocators may use the group",
        lambda r: r.group.alloc_policy.value,
    ),
    Field("node_cnt", "Nodes", ValueKind.NUMBER, "How many nodes", lambda r: len(r.node_names)),
    Field("node_list", "NodeList", ValueKind.OTHER, "Names of the nodes", lambda r: r.node_names),
    Field(
        "pinst_cnt",
        "Instances",
        ValueKind.NUMBER,
        "How many instances have their primary node in the group",
        lambda r: len(r.instances),
    ),
    Field(
        "pinst_list",
        "InstanceList",
        ValueKind.OTHER,
        "Instances that have their primary node in the group",
        lambda r: sorted(instance.name for instance in r.instances),
    ),
    Field(
        "ipolicy",
        "InstancePolicy",
        ValueKind.OTHER,
        "Limits for instances, including the cluster's",
        lambda r: fill.filled_ipolicy(r.context.snapshot.cluster, r.group),
    ),
    Field(
        "custom_ipolicy",
        "CustomInstancePolicy",
        ValueKind.OTHER,
        "Limits that were set for this group",
        lambda r: r.group.ipolicy,
    ),
    Field(
        "ndparams",
        "NDParams",
        ValueKind.OTHER,
        "Node parameters, including the cluster's",
        _ndparams,
    ),
    Field(
        "custom_ndparams",
        "CustomNDParams",
        ValueKind.OTHER,
        "Node parameters that were set for this group",
        lambda r: r.group.ndparams,
    ),
    Field(
        "beparams",
        "BEParams",
        ValueKind.OTHER,
        "Recovery parameters of the group's instances, including the cluster's",
        _beparams,
    ),
    Field(
        "custom_beparams",
        "CustomBEParams",
        ValueKind.OTHER,
        "Recovery parameters that were set for this group",
        lambda r: r.group.beparams,
    ),
    Field(
        "diskparams",
        "DiskParameters",
        ValueKind.OTHER,
        "Disk parameters, including the cluster's",
        lambda r: fill.all_diskparams(r.context.snapshot.cluster, r.group),
    ),
    Field(
        "custom_diskparams",
        "CustomDiskParameters",
        ValueKind.OTHER,
        "Disk parameters that were set for this group",
        lambda r: r.group.diskparams,
    ),
    Field(
        "networks",
        "Networks",
        ValueKind.OTHER,
        "Networks that are connected to the group",
        lambda r: sorted(r.group.networks),
    ),
)


def _param(param: Param) -> Field[GroupRow]:
    return Field(
        f"ndp/{param.name}",
        param.title or f"ndp/{param.name}",
        kind_of_param(param),
        f'Node parameter "{param.name}", from the group or the cluster',
        lambda row: _ndparams(row)[param.name],
    )


def _backend_param(param: Param) -> Field[GroupRow]:
    return Field(
        f"be/{param.name}",
        f"be/{param.name}",
        kind_of_param(param),
        f'Recovery parameter "{param.name}" of the group\'s instances, from the group or the cluster',
        lambda row: _beparams(row)[param.name],
    )


GROUP_FIELDS = table(
    _FIELDS,
    map(_param, NODE_PARAMS.values()),
    map(_backend_param, GROUP_BACKEND_PARAMS.values()),
    stored_fields("group", lambda row: row.group),
)
