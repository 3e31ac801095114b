"""Storage units and logical volumes of nodes: their list, and changes of one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import ExecError, InputError, RpcError
from ganeti.base.identifiers import plain_name
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_unit, stored_name
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES, PLAIN, StorageUnit, storage_facts
from ganeti.model.objects import Node, NodeUuid
from ganeti.model.opcodes.storage import OpNodeModifyStorage, OpNodeQueryStorage, OpNodeQueryvols
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.storage_units import (
    NODE_VOLUMES,
    STORAGE_UNIT_CHANGE,
    STORAGE_UNITS,
    ChangeUnitArgs,
    StorageKindArgs,
    UnitState,
    VolumePart,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.job_source import check_is_local
from ganeti.units.node_choice import check_online

UNIT_FIELDS = ("node", "type", "name", "size", "used", "free", "allocatable", "problem")
VOLUME_FIELDS = ("node", "phys", "vg", "name", "size", "instance")
CHANGES = ("allocatable", "present")


def default_kind(snapshot: Snapshot) -> str:
    """Return the default kind of the list: that of the first enabled template with storage on nodes."""
    templates = (DISK_TEMPLATES[name] for name in snapshot.cluster.enabled_disk_templates)
    return next((facts.kind for one in templates if (facts := storage_facts(one))), "file")


def check_fields(given: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError that names unknown fields."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            f"unknown fields {', '.join(unknown)}; known: {', '.join(known)}", "output_fields"
        )


def chosen_nodes(snapshot: Snapshot, names: Sequence[str]) -> list[Node]:
    """Return the named nodes, or all online ones, by name."""
    if not names:
        return [node for node in snapshot.nodes_by_name() if not node.offline]
    nodes = {resolve_node(snapshot, name).uuid: resolve_node(snapshot, name) for name in names}
    for node in nodes.values():
        check_online(node)
    return sorted(nodes.values(), key=lambda node: node.name)


async def _asked(
    ctx: UnitContext, nodes: list[Node], procedure: Procedure[Any, Any], args: Any
) -> list[tuple[Node, Any]]:
    """Return the answers of nodes; failures are one warning a reason, or ExecError if all fail for one reason."""
    answers = await ctx.call_all(nodes, procedure, args)
    found, failed = [], dict[str, list[str]]()
    for node in nodes:
        answer = answers[node.uuid]
        if isinstance(answer, RpcError):
            failed.setdefault(answer.reason, []).append(node.name)
        else:
            found.append((node, answer))
    if not found and len(failed) == 1:
        [(reason, names)] = failed.items()
        raise ExecError(f"{names[0] if len(names) == 1 else f'all {len(names)} nodes'}: {reason}")
    for reason, names in failed.items():
        ctx.warn(f"{', '.join(names)}: {reason}")
    return found


class LUNodeQueryStorage(LogicalUnit[OpNodeQueryStorage, list[Node]]):
    """List the storage units of a kind; only nodes interpret the kind."""

    def check_arguments(self) -> None:
        check_fields(self.op.output_fields, UNIT_FIELDS)
        if self.op.storage_type is not None:
            plain_name(self.op.storage_type, "storage_type")

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return chosen_nodes(ctx.snapshot, self.op.nodes)

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        kind = self.op.storage_type or default_kind(ctx.snapshot)
        rows = []
        for node, units in await _asked(ctx, plan, STORAGE_UNITS, StorageKindArgs(kind=kind)):
            for unit in sorted(units, key=lambda one: one.name):
                if self.op.name in (None, unit.name):
                    values = _values(node, kind, unit)
                    rows.append([values[field] for field in self.op.output_fields])
        return Outcome(rows)


def _values(node: Node, kind: str, unit: UnitState) -> dict[str, Any]:
    return {
        "node": node.name,
        "type": kind,
        "name": unit.name,
        "size": unit.size,
        "used": unit.used,
        "free": unit.free,
        "allocatable": unit.allocatable,
        "problem": unit.problem,
    }


class LUNodeModifyStorage(LogicalUnit[OpNodeModifyStorage, Node]):
    """Close or open a storage unit for new disks, create or delete one."""

    def check_arguments(self) -> None:
        plain_name(self.op.storage_type, "storage_type")
        changes: Mapping[str, Any] = self.op.changes
        if not changes:
            raise InputError(
                "nothing to change: pass --allocatable, --create or --delete", "changes"
            )
        for name, value in changes.items():
            if name not in CHANGES:
                raise InputError(
                    f"nothing to change; known: {', '.join(CHANGES)}", f"changes.{name}"
                )
            if not isinstance(value, bool):
                raise InputError("must be true or false", f"changes.{name}")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        node = resolve_node(snapshot, self.op.node_uuid or self.op.node_name)
        return [lock(Level.NODE, node.uuid, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> Node:
        if "present" in self.op.changes:
            check_is_local(ctx, "directories for disks")
        node = resolve_node(ctx.snapshot, self.op.node_uuid or self.op.node_name)
        check_online(node)
        return node

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        unit = StorageUnit(kind=self.op.storage_type, key=self.op.name)
        await ctx.call(plan, STORAGE_UNIT_CHANGE, ChangeUnitArgs(unit=unit, **self.op.changes))
        return Outcome()


class LUNodeQueryvols(LogicalUnit[OpNodeQueryvols, list[Node]]):
    """List the logical volumes of nodes, with their instances."""

    def check_arguments(self) -> None:
        check_fields(self.op.output_fields, VOLUME_FIELDS)

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return chosen_nodes(ctx.snapshot, self.op.nodes)

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        rows: list[list[Any]] = []
        for node, volumes in await _asked(ctx, plan, NODE_VOLUMES, Nothing()):
            owners = owners_on(ctx.snapshot, NodeUuid(node.uuid))
            rows += _rows(node, volumes, owners, self.op.output_fields)
        return Outcome(rows)


def owners_on(snapshot: Snapshot, node: NodeUuid) -> dict[tuple[str, str], str]:
    """Return (volume group, name) -> the instance whose volume it is on a node."""
    found = {}
    for uuid in snapshot.index.instances_of(node):
        instance = snapshot.instances.get(uuid)
        if instance is None or node not in holders(instance):
            continue
        for layer in (layer for disk in instance.disks for layer in disk.layers()):
            unit = disk_unit(snapshot.cluster, layer)
            if unit is not None and layer.template == PLAIN.name:
                found[unit.key, stored_name(layer, node)] = instance.name
    return found


def _rows(
    node: Node,
    volumes: Iterable[VolumePart],
    owners: Mapping[tuple[str, str], str],
    fields: Sequence[str],
) -> list[list[Any]]:
    rows = []
    for one in sorted(volumes, key=lambda one: (one.devices, one.group, one.name)):
        values = {
            "node": node.name,
            "phys": ",".join(one.devices),
            "vg": one.group,
            "name": one.name,
            "size": one.size,
            "instance": owners.get((one.group, one.name), "-"),
        }
        rows.append([values[field] for field in fields])
    return rows
