"""Fields of nodes; the h-tools read them as well."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ganeti.config import fill
from ganeti.config.storage_units import storage_unit, with_overcommit
from ganeti.model.figures import GUEST_MEMORY, Values
from ganeti.model.names import NodeRole
from ganeti.model.objects import Instance, Node
from ganeti.model.param import Param
from ganeti.model.params import NODE_PARAMS
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import (
    NO_DATA,
    UNAVAILABLE,
    Field,
    Missing,
    Need,
    ValueKind,
    kind_of_param,
)
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields
from ganeti.query.fields.usage import usage_fields
from ganeti.rpc.procedures.host import NodeInfo, StorageSpace


@dataclass(frozen=True)
class NodeRow:
    """One node in its context."""

    context: QueryContext
    node: Node

    @property
    def is_master(self) -> bool:
        return self.context.snapshot.cluster.master_node == self.node.uuid

    @property
    def role(self) -> NodeRole:
        node = self.node
        if self.is_master:
            return NodeRole.MASTER
        if node.offline:
            return NodeRole.OFFLINE
        if node.drained:
            return NodeRole.DRAINED
        return NodeRole.CANDIDATE if node.master_candidate else NodeRole.REGULAR

    @property
    def group_name(self) -> str:
        group = self.context.snapshot.groups.get(self.node.group)
        return self.node.group if group is None else group.name


def _live(
    name: str, title: str, kind: ValueKind, doc: str, value: Callable[[NodeInfo], Any]
) -> Field[NodeRow]:
    def get(row: NodeRow) -> Any:
        info = row.context.node_info(row.node)
        return info if isinstance(info, Missing) else value(info)

    return Field(name, title, kind, doc, get, frozenset((Need.NODES,)))


def _storage(row: NodeRow) -> StorageSpace | Missing:
    """Return the space for the first enabled disk template, from the node's report."""
    info = row.context.node_info(row.node)
    if isinstance(info, Missing):
        return info
    cluster, spaces = row.context.snapshot.cluster, {space.unit: space for space in info.storage}
    for template in cluster.enabled_disk_templates:
        unit = storage_unit(cluster, template)
        if unit in spaces:
            return with_overcommit(cluster, spaces[unit])
    return NO_DATA


def _space(name: str, title: str, doc: str, value: Callable[[StorageSpace], int]) -> Field[NodeRow]:
    def get(row: NodeRow) -> Any:
        space = _storage(row)
        return space if isinstance(space, Missing) else value(space)

    return Field(name, title, ValueKind.UNIT, doc, get, frozenset((Need.NODES,)))


def _spindles(
    name: str, title: str, doc: str, value: Callable[[StorageSpace], int]
) -> Field[NodeRow]:
    """As in upstream Ganeti, 0 if disks share devices, or without volumes."""

    def get(row: NodeRow) -> Any:
        space, snapshot = _storage(row), row.context.snapshot
        if isinstance(space, Missing):
            return space
        group = snapshot.groups.get(row.node.group)
        return value(space) if fill.is_exclusive(snapshot.cluster, group) else 0

    return Field(name, title, _NUMBER, doc, get, frozenset((Need.NODES,)))


def _names(instances: Iterable[Instance]) -> list[str]:
    return sorted(instance.name for instance in instances)


def _param(param: Param) -> Field[NodeRow]:
    return Field(
        f"ndp/{param.name}",
        param.title or f"ndp/{param.name}",
        kind_of_param(param),
        f'Node parameter "{param.name}", from the node, its group or the cluster',
        lambda row: fill.filled_ndparams(row.context.snapshot, row.node)[param.name],
    )


def _powered(row: NodeRow) -> bool | Missing:
    params = fill.filled_ndparams(row.context.snapshot, row.node)
    has_device = params["oob_program"] or params["fence_agent"]
    return row.node.powered if has_device else UNAVAILABLE


_TEXT, _BOOL, _NUMBER, _OTHER = (
    ValueKind.TEXT,
    ValueKind.BOOL,
    ValueKind.NUMBER,
    ValueKind.OTHER,
)

_CONFIGURED: tuple[Field[NodeRow], ...] = (
    Field("name", "Node", _TEXT, "Name of the node", lambda r: r.node.name, is_host_name=True),
    Field("pip", "PrimaryIP", _TEXT, "Address for the cluster itself", lambda r: r.node.primary_ip),
    Field(
        "sip",
        "SecondaryIP",
        _TEXT,
        "Address for replication of disks",
        lambda r: r.node.secondary_ip,
    ),
    Field(
        "role",
        "Role",
        _TEXT,
        "M is the master, C a master candidate, R a regular node, D drained, O offline",
        lambda r: r.role.value,
    ),
    Field("master", "IsMaster", _BOOL, "Whether the node is the master", lambda r: r.is_master),
    Field(
        "master_candidate",
        "MasterC",
        _BOOL,
        "Whether the node keeps the cluster's state and may become master",
        lambda r: r.node.master_candidate,
    ),
    Field(
        "master_capable",
        "MasterCapable",
        _BOOL,
        "Whether the node may be made a master candidate",
        lambda r: r.node.master_capable,
    ),
    Field(
        "vm_capable",
        "VMCapable",
        _BOOL,
        "Whether instances may be placed on the node",
        lambda r: r.node.vm_capable,
    ),
    Field(
        "drained",
        "Drained",
        _BOOL,
        "Whether the node is being emptied: it gets no new instances",
        lambda r: r.node.drained,
    ),
    Field(
        "offline", "Offline", _BOOL, "Whether the node is marked offline", lambda r: r.node.offline
    ),
    Field(
        "maintenance",
        "Maintenance",
        _BOOL,
        "Whether the node is in maintenance: it is drained, and automatic recovery ignores it",
        lambda r: r.node.maintenance is not None,
    ),
    Field(
        "moved_away",
        "MovedAway",
        _OTHER,
        "Instances that left the node for its maintenance and have not returned",
        lambda r: _names(r.context.snapshot.moved_away_from(r.node)),
    ),
    Field(
        "recovery_state",
        "Recovery",
        _TEXT,
        "Last recorded state of automatic recovery; gnt-cluster ha-status shows the present one",
        lambda r: r.node.recovery.state.value if r.node.recovery else UNAVAILABLE,
    ),
    Field(
        "recovery_why",
        "RecoveryReason",
        _TEXT,
        "Why the node is in that state",
        lambda r: r.node.recovery.why if r.node.recovery else UNAVAILABLE,
    ),
    Field("group", "Group", _TEXT, "Name of the node's group", lambda r: r.group_name),
    Field("group.uuid", "GroupUUID", _TEXT, "UUID of the node's group", lambda r: r.node.group),
    Field(
        "powered",
        "Powered",
        _BOOL,
        "Whether the node is powered on; known only with out-of-band management",
        _powered,
    ),
    Field(
        "disk_state", "DiskState", _OTHER, "Stated use of disks; not kept", lambda _row: UNAVAILABLE
    ),
    Field(
        "hv_state",
        "HypervisorState",
        _OTHER,
        "Stated use of the hypervisor; not kept",
        lambda _row: UNAVAILABLE,
    ),
    Field(
        "ndparams",
        "NodeParameters",
        _OTHER,
        "Node parameters, with those of the group and the cluster",
        lambda r: fill.filled_ndparams(r.context.snapshot, r.node),
    ),
    Field(
        "custom_ndparams",
        "CustomNodeParameters",
        _OTHER,
        "Node parameters that were set for this node",
        lambda r: r.node.ndparams,
    ),
    Field(
        "pinst_cnt",
        "Pinst",
        _NUMBER,
        "How many instances have the node as primary node",
        lambda r: len(r.context.primaries.get(r.node.uuid, ())),
    ),
    Field(
        "sinst_cnt",
        "Sinst",
        _NUMBER,
        "How many instances have the node as secondary node",
        lambda r: len(r.context.secondaries.get(r.node.uuid, ())),
    ),
    Field(
        "pinst_list",
        "PriInstances",
        _OTHER,
        "Instances that have the node as primary node",
        lambda r: _names(r.context.primaries.get(r.node.uuid, ())),
    ),
    Field(
        "sinst_list",
        "SecInstances",
        _OTHER,
        "Instances that have the node as secondary node",
        lambda r: _names(r.context.secondaries.get(r.node.uuid, ())),
    ),
)

_ASKED: tuple[Field[NodeRow], ...] = (
    _live(
        "bootid", "BootID", _TEXT, "Identifier that the kernel made at boot", lambda i: i.boot_id
    ),
    _live("cnodes", "CNodes", _NUMBER, "How many NUMA nodes", lambda i: i.cpu_nodes),
    _live("csockets", "CSockets", _NUMBER, "How many processor sockets", lambda i: i.cpu_sockets),
    _live("ctotal", "CTotal", _NUMBER, "How many logical processors", lambda i: i.cpu_total),
    _live(
        "cnos", "CNOs", _NUMBER, "Logical processors kept for the host itself", lambda i: i.cpu_node
    ),
    _live("mtotal", "MTotal", ValueKind.UNIT, "Memory of the machine", lambda i: i.memory_total),
    _live(
        "mnode",
        "MNode",
        ValueKind.UNIT,
        "Memory that the host itself uses",
        lambda i: i.memory_node,
    ),
    _live(
        "mfree",
        "MFree",
        ValueKind.UNIT,
        "Memory that new instances can have",
        lambda i: i.memory_free,
    ),
    _space("dtotal", "DTotal", "Space for disks, of the first enabled template", lambda s: s.total),
    _space(
        "dfree", "DFree", "Free space for disks, of the first enabled template", lambda s: s.free
    ),
    _spindles("sptotal", "SpTotal", "Spindles, with exclusive storage", lambda s: s.devices),
    _spindles(
        "spfree", "SpFree", "Free spindles, with exclusive storage", lambda s: s.free_devices
    ),
)


def _figures(row: NodeRow) -> Values | Missing:
    found = row.context.figures_of(row.node)
    return found if isinstance(found, Missing) else found.node or NO_DATA


NODE_FIELDS = table(
    _CONFIGURED,
    _ASKED,
    usage_fields(_figures, without=(GUEST_MEMORY,)),
    stored_fields("node", lambda row: row.node),
    map(_param, NODE_PARAMS.values()),
)
