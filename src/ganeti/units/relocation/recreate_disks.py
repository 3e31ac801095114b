"""Recreation of disks whose data was lost."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.layouts.planner import placed_disks
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType, named_allocators
from ganeti.model.objects import Disk, Instance, Node, NodeUuid
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance_changes import OpInstanceRecreateDisks
from ganeti.model.param_checks import changed as changed_params
from ganeti.model.params import Params
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, DiskArgs
from ganeti.units.allocation import PlacementRequest, allocators_for, choose_nodes
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    primary_node,
    put_instance,
    running_state,
)
from ganeti.units.instance.device_changes import only_known
from ganeti.units.instance.disk_changes import size_of
from ganeti.units.instance.disks import JobNames, disks_on, planner_of
from ganeti.units.instance.grants import check_has_ended, record_empty
from ganeti.units.instance.requests import check_disks, disk_mode
from ganeti.units.instance.snapshot_checks import check_no_snapshots
from ganeti.units.node_choice import check_can_host, check_online, check_space, free_resources
from ganeti.units.relocation.plan import DiskPlan
from ganeti.units.relocation.steps import MakeDisks, course
from ganeti.units.spindles import check_asked, check_spindles


class LUInstanceRecreateDisks(InstanceUnit[OpInstanceRecreateDisks, DiskPlan]):
    """Recreate lost disks, empty; an existing disk is never touched (G12)."""

    hook = "instance-recreate-disks"

    def check_arguments(self) -> None:
        op = self.op
        _wanted(op.disks)
        nodes = op.node_uuids or op.nodes
        if nodes and op.iallocator:
            raise InputError("pass either nodes or an allocator, not both", "iallocator")
        named_allocators(op.iallocator)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        if self.op.iallocator:
            nodes: Any = ALL
        else:
            given = [resolve_node(snapshot, name).uuid for name in self._given_nodes()]
            nodes = {*self.instance(snapshot).all_nodes, *given}
        name = self.instance(snapshot).name
        return [lock(Level.INSTANCE, name), lock(Level.NODE, nodes, Mode.SHARED)]

    def _given_nodes(self) -> list[str]:
        return self.op.node_uuids or self.op.nodes

    async def check_prereq(self, ctx: UnitContext) -> DiskPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_no_snapshots(instance, "given new disks", "they belong to the lost ones")
        wanted = _wanted(self.op.disks) or {at: {} for at in range(len(instance.disks))}
        disks = _changed(instance.disks, wanted)
        unplaced = replace(instance, disks=disks)
        nodes = await self._nodes(ctx, unplaced)
        uuids = tuple(NodeUuid(node.uuid) for node in nodes)
        if uuids != instance.all_nodes and len(wanted) < len(disks):
            raise PrereqError(
                f"on another node all {len(disks)} disks of {instance.name} must be recreated",
                ErrorCode.WRONG_INPUT,
            )
        await self._check_down(ctx, instance)
        after = placed_disks(planner_of(instance), unplaced, uuids, JobNames(ctx))
        ctx.check_change(put_instance(after))
        again = [disk for at, disk in enumerate(after.disks) if at in wanted]
        needs = space_needed(ctx.snapshot.cluster, again)
        for node in nodes:
            await self._check_gone(ctx, node, after, sorted(wanted))
            info = await free_resources(ctx, node, f"disks of {instance.name}", needs)
            check_space(info, node, needs)
            check_asked(ctx.snapshot, node, again)
            check_spindles(ctx.snapshot, info, node, again)
        made = tuple(disk.uuid for disk in again)
        return DiskPlan(before=instance, after=after, node=nodes[0], disks=made)

    async def _check_down(self, ctx: UnitContext, instance: Instance) -> None:
        """Refuse an instance that runs or should run; a node that is marked offline counts as dead: its disks are lost."""
        node = primary_node(ctx, instance)
        if node.offline:
            check_has_ended(ctx.snapshot, instance)
        elif await running_state(ctx, node, instance) is not None:
            raise PrereqError(
                f"{instance.name} runs on {node.name}; first run: gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        if instance.admin_state == "up":
            raise PrereqError(
                f"{instance.name} should run; first run: gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )

    async def _nodes(self, ctx: UnitContext, instance: Instance) -> list[Node]:
        """Return the nodes of the disks, the new primary node first."""
        given = self._given_nodes()
        needed = DISK_TEMPLATES[instance.disk_template].nodes_needed
        if given:
            if len(given) != needed:
                raise InputError(
                    f"template {instance.disk_template} needs {needed} node(s), not {len(given)}",
                    "nodes",
                )
            nodes = [resolve_node(ctx.snapshot, name) for name in given]
        elif self.op.iallocator:
            # Allocators place only new instances, so the request uses an unused name.
            unplaced = replace(instance, name=f"new-disks.{instance.name}")
            request = PlacementRequest(Demand.of(ctx.snapshot.cluster, unplaced), will_run=False)
            allocators = allocators_for(
                ctx.snapshot.cluster, RequestType.ALLOCATE, self.op.iallocator
            )
            if not allocators:
                raise PrereqError(
                    "name an allocator: the cluster has no default allocator", ErrorCode.WRONG_INPUT
                )
            nodes = (await choose_nodes(ctx, allocators, request)).nodes
        else:
            nodes = [ctx.snapshot.nodes[uuid] for uuid in instance.all_nodes]
            for node in nodes:
                check_online(node)
            return nodes
        for node in nodes:
            check_can_host(node)
        return nodes

    async def _check_gone(
        self, ctx: UnitContext, node: Node, instance: Instance, wanted: Sequence[int]
    ) -> None:
        disks = disks_on(ctx, instance, NodeUuid(node.uuid))
        for disk in (disks[at] for at in wanted):
            args = DiskArgs(instance_name=instance.name, disk=disk)
            found = await ctx.call(node, BLOCKDEV_INFO, args)
            if found.exists:
                raise PrereqError(
                    f"disk {disk.index} of {instance.name} exists on {node.name} ({found.path}): data is never"
                    " overwritten; name only the lost disks (--disk)",
                    ErrorCode.EXISTS,
                )

    async def execute(self, ctx: UnitContext, plan: DiskPlan) -> Outcome:
        async with course(ctx) as steps:
            ctx.step(f"recreating {len(plan.disks)} disks of {plan.after.name}")
            await steps.take(MakeDisks(plan.after, only=plan.disks))
            steps.commit(record_empty(plan.after, plan.disks))
        return Outcome()


def _wanted(given: Sequence[int | list[Any]]) -> dict[int, Params]:
    """Return index -> the requested changes of a disk."""
    wanted: dict[int, Params] = {}
    for number, one in enumerate(given):
        field = f"disks[{number}]"
        match one:
            case int(index):
                params: Params = {}
            case [int(index), dict() as params]:
                only_known(params, ("size", "mode", "spindles"), field)
            case _:
                raise InputError("must be an index, or [index, parameters]", field)
        if isinstance(index, bool) or index < 0:
            raise InputError("must be the index of a disk", field)
        if index in wanted:
            raise InputError(f"disk {index} occurs twice", field)
        wanted[index] = params
    return wanted


def _changed(disks: Sequence[Disk], wanted: dict[int, Params]) -> tuple[Disk, ...]:
    if not disks:
        raise PrereqError("the instance has no disks", ErrorCode.WRONG_STATE)
    changed = list(disks)
    for index, params in wanted.items():
        if index >= len(disks):
            raise InputError(f"disk {index} does not exist: the instance has {len(disks)}", "disks")
        disk = disks[index]
        size = size_of(params, f"disks[{index}]") if "size" in params else disk.size
        mode = str(params.get("mode", disk.mode))
        check_disks([DiskRequest(size=size, mode=mode)], None)
        asked = {"spindles": params["spindles"]} if "spindles" in params else {}
        own = check_disk_params(disk.template, asked, f"disks[{index}]", of_disk=True)
        changed[index] = replace(
            disk, size=size, mode=disk_mode(mode), params=changed_params(disk.params, own)
        )
    return tuple(changed)
