"""Snapshots of instances: taken, rolled back to, removed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.base.identifiers import plain_name
from ganeti.config.fill import filled_beparams, instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState, Consistency
from ganeti.model.objects import Disk, DiskSnapshot, Instance, InstanceSnapshot, InstanceUuid, Node
from ganeti.model.opcodes.snapshots import (
    OpInstanceSnapshotCreate,
    OpInstanceSnapshotRemove,
    OpInstanceSnapshotRollback,
)
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, ShutdownArgs
from ganeti.rpc.procedures.snapshots import (
    SNAPSHOT_ROLL_BACK,
    SNAPSHOTS_TAKE,
    TakeSnapshotsArgs,
)
from ganeti.rpc.procedures.streams import SNAPSHOT_POSSIBLE, DiskOf, SnapshotArgs
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    check_shutdown_timeout,
    has_running_guest,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.snapshot_checks import MEANING, check_not_rolling_back
from ganeti.units.instance.snapshot_memory import check_fits, memory_disk, restore, save
from ganeti.units.node_choice import check_online, check_space, free_resources
from ganeti.units.telling import showing
from ganeti.units.undo.instances import StartAgain
from ganeti.units.undo.step import Step
from ganeti.units.undo.transfers import memory_removal, snapshot_removals

NAME_LIMIT = 64


def snapshot_of(instance: Instance, name: str) -> InstanceSnapshot:
    """Return a snapshot by its name; PrereqError with the existing ones."""
    found = next((one for one in instance.snapshots if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in instance.snapshots) or "none"
        raise PrereqError(
            f"{instance.name} has no snapshot {name!r:.80}; it has {known}",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return found


def _changed(uuid: InstanceUuid, change: Callable[[Instance], Instance]) -> Change:
    """Return the configuration change that replaces an instance by `change(instance)`."""

    def apply(draft: Draft) -> None:
        draft.put(change(draft.instances[uuid]))

    return apply


@dataclass(frozen=True)
class TakePlan:
    """The instance, and the snapshot without its consistency, which only the node knows."""

    instance: Instance
    node: Node
    snapshot: InstanceSnapshot
    memory: Disk | None = None
    """The disk for the memory of the guest, if that is saved."""


class LUInstanceSnapshotCreate(InstanceUnit[OpInstanceSnapshotCreate, TakePlan]):
    """Take a snapshot of all disks of an instance."""

    hook = "instance-snapshot"

    def check_arguments(self) -> None:
        if (name := self.op.snapshot) is not None:
            plain_name(name, "snapshot")
            if len(name) > NAME_LIMIT:
                raise InputError(f"must have at most {NAME_LIMIT} characters", "snapshot")

    async def check_prereq(self, ctx: UnitContext) -> TakePlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_not_rolling_back(instance)
        node = primary_node(ctx, instance)
        check_online(node)
        _check_template(instance)
        name = self.op.snapshot or time.strftime("%Y%m%d-%H%M%S", time.gmtime(ctx.now))
        if any(one.name == name for one in instance.snapshots):
            raise PrereqError(f"{instance.name} has a snapshot {name} already", ErrorCode.EXISTS)
        limit = filled_beparams(ctx.snapshot, instance)["max_snapshots"]
        if len(instance.snapshots) >= limit:
            raise PrereqError(
                f"{instance.name} has {len(instance.snapshots)} snapshots, and may have {limit}; remove one"
                f" (gnt-instance snapshot remove {instance.name} SNAPSHOT), or raise the limit (gnt-instance modify"
                f" -B max_snapshots={limit + 1} {instance.name})",
                ErrorCode.NO_RESOURCES,
            )
        memory = await memory_disk(ctx, instance, node) if self.op.memory else None
        await self._check_storage(ctx, instance, node, memory)
        uuid = ctx.ids.uuid()
        disks = tuple(
            DiskSnapshot(disk=disk.uuid, size=disk.size, name=_stored_name(uuid, disk.uuid))
            for disk in instance.disks
        )
        taken = InstanceSnapshot(
            uuid=uuid, name=name, ctime=ctx.now, consistency=Consistency.CRASH, disks=disks
        )
        return TakePlan(instance, node, taken, memory)

    async def _check_storage(
        self, ctx: UnitContext, instance: Instance, node: Node, memory: Disk | None
    ) -> None:
        """Refuse if the storage has no snapshots, or no space for them."""
        template = DISK_TEMPLATES[instance.disk_template]
        for disk in instance_spec(ctx.snapshot, instance).disks:
            if disk.exclusive:
                raise PrereqError(
                    f"disk {disk.index} of {instance.name} has physical devices of its own (exclusive storage), and"
                    " they have no space for snapshots",
                    ErrorCode.WRONG_STATE,
                )
            asked = DiskOf(instance_name=instance.name, disk=disk)
            if not (await ctx.call(node, SNAPSHOT_POSSIBLE, asked)).possible:
                raise PrereqError(
                    f"the storage of disk {disk.index} of {instance.name} on {node.name} does not support snapshots;"
                    f" template {template.name} needs {template.snapshots_need or 'another storage'}",
                    ErrorCode.WRONG_STATE,
                )
        taking = instance.disks if template.snapshots_take_space else ()
        if needs := space_needed(ctx.snapshot.cluster, (*taking, *([memory] if memory else ()))):
            what = f"a snapshot of {instance.name}"
            check_space(await free_resources(ctx, node, what, needs), node, needs)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: TakePlan
    ) -> dict[str, str]:
        return {"SNAPSHOT_ACTION": "create", "SNAPSHOT_NAME": plan.snapshot.name}

    def dry_run_result(self, ctx: UnitContext, plan: TakePlan) -> Any:
        return {"name": plan.snapshot.name, "consistency": None}

    async def execute(self, ctx: UnitContext, plan: TakePlan) -> Outcome:
        instance, wanted = plan.instance, plan.snapshot
        ctx.step(f"taking snapshot {wanted.name} of {len(wanted.disks)} disks on {plan.node.name}")
        async with ctx.undo_log() as undo:
            if plan.memory is not None:
                taken = await save(ctx, undo, instance, wanted, plan.memory)
            else:
                taken = await self._take(ctx, undo, plan)
            undo.commit(
                _changed(instance.uuid, lambda now: replace(now, snapshots=(*now.snapshots, taken)))
            )
        ctx.info(MEANING[taken.consistency])
        return Outcome({"name": taken.name, "consistency": taken.consistency.value})

    async def _take(self, ctx: UnitContext, undo: UndoLog, plan: TakePlan) -> InstanceSnapshot:
        """Take the snapshots of the disks; `undo` removes them."""
        instance, wanted = plan.instance, plan.snapshot
        for step in snapshot_removals(ctx.snapshot, instance, [wanted], unsure=True):
            await undo.push(step)
        names = [one.name for one in wanted.disks]
        args = TakeSnapshotsArgs(instance=spec_of(ctx, instance), names=names)
        taken = await ctx.call(plan.node, SNAPSHOTS_TAKE, args)
        return replace(wanted, consistency=taken.consistency)


def _check_template(instance: Instance) -> None:
    template = DISK_TEMPLATES[instance.disk_template]
    if not instance.disks:
        raise PrereqError(f"{instance.name} has no disks", ErrorCode.WRONG_STATE)
    if template.no_snapshots:
        able = [
            row.name for row in DISK_TEMPLATES.values() if row.has_disks and not row.no_snapshots
        ]
        raise PrereqError(
            f"disks of template {template.name} have no snapshots, because {template.no_snapshots}; templates with"
            f" snapshots: {', '.join(able)}",
            ErrorCode.WRONG_STATE,
        )


def _stored_name(snapshot: str, disk: str) -> str:
    """Return a name that is unique in every storage, and short enough for device-mapper."""
    return f"snap-{snapshot.replace('-', '')}-{disk.replace('-', '')[-12:]}"


@dataclass(frozen=True)
class RollbackPlan:
    """The instance, the snapshot, and what happens to its guest."""

    instance: Instance
    node: Node
    snapshot: InstanceSnapshot
    is_there: bool
    """Something of the guest is on the node, if only a process of one that shut itself down."""
    restart: bool

    @property
    def has_memory(self) -> bool:
        """Return whether the guest continues from the memory of the snapshot."""
        return self.snapshot.memory is not None


class LUInstanceSnapshotRollback(InstanceUnit[OpInstanceSnapshotRollback, RollbackPlan]):
    """Roll the disks back; an interrupted rollback blocks the guest's start until it is repeated."""

    hook = "instance-snapshot"

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")

    async def check_prereq(self, ctx: UnitContext) -> RollbackPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        wanted = snapshot_of(instance, self.op.snapshot)
        if self.op.no_memory:
            wanted = replace(wanted, memory=None)
        node = primary_node(ctx, instance)
        check_online(node)
        state = await running_state(ctx, node, instance)
        is_up = has_running_guest(state)
        if is_up and not self.op.stop:
            how = "shut it down and start it again" if wanted.memory is None else "replace it"
            raise PrereqError(
                f"{instance.name} runs; pass --stop to {how}, or first run: gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        await check_fits(ctx, instance, node, wanted, state)
        covered = {one.disk for one in wanted.disks}
        for number, disk in enumerate(instance.disks):
            if disk.uuid not in covered:
                ctx.warn(f"disk {number} is newer than the snapshot, and keeps its content")
        restart = self.op.stop and instance.admin_state is AdminState.UP
        return RollbackPlan(instance, node, wanted, state is not None, restart)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: RollbackPlan
    ) -> dict[str, str]:
        return {
            "SNAPSHOT_ACTION": "rollback",
            "SNAPSHOT_NAME": plan.snapshot.name,
            "SHUTDOWN_TIMEOUT": text(self.op.shutdown_timeout),
        }

    async def execute(self, ctx: UnitContext, plan: RollbackPlan) -> Outcome:
        instance, wanted = plan.instance, plan.snapshot
        async with ctx.undo_log() as undo:
            if plan.restart:
                again = StartAgain(instance=instance.uuid)
                await undo.push(again, also_after=not plan.has_memory)
            if plan.is_there:
                await self._shut_down(ctx, plan)
            # Recorded before the first byte, so that nothing starts from a mixture of two contents.
            begun = _changed(instance.uuid, lambda now: replace(now, rolling_back=wanted.uuid))
            await ctx.config.change(begun)
            try:
                await self._roll_back(ctx, plan)
            except RpcError as err:
                raise ExecError(
                    f"{err}; the disks of {instance.name} may be a mixture of two contents now, so it cannot be"
                    " started; repair the cause and run: gnt-instance snapshot rollback"
                    f" {instance.name} {wanted.name}"
                ) from err
            if plan.has_memory:
                await restore(ctx, undo, instance, plan.node, wanted)
            else:
                undo.commit(_changed(instance.uuid, lambda now: replace(now, rolling_back=None)))
        ctx.services.placements.release(ctx.job_id)
        return Outcome()

    async def _shut_down(self, ctx: UnitContext, plan: RollbackPlan) -> None:
        # A guest that is replaced would shut down for nothing.
        limit_s = 0 if plan.has_memory else self.op.shutdown_timeout
        ctx.step(f"shutting down {plan.instance.name} on {plan.node.name} (at most {limit_s} s)")
        args = ShutdownArgs(instance=spec_of(ctx, plan.instance), timeout_s=limit_s)
        await ctx.call(plan.node, INSTANCE_SHUTDOWN, args)
        if await running_state(ctx, plan.node, plan.instance) is not None:
            raise ExecError(
                f"{plan.instance.name} is still on {plan.node.name} after it was shut down; its disks are unchanged"
            )

    async def _roll_back(self, ctx: UnitContext, plan: RollbackPlan) -> None:
        stored = {one.disk: one.name for one in plan.snapshot.disks}
        for disk in instance_spec(ctx.snapshot, plan.instance).disks:
            if disk.uuid not in stored:
                continue
            ctx.step(f"rolling disk {disk.index} back to snapshot {plan.snapshot.name}")
            args = SnapshotArgs(instance_name=plan.instance.name, disk=disk, name=stored[disk.uuid])
            async with showing(ctx, plan.node, f"disk {disk.index}"):
                await ctx.call(plan.node, SNAPSHOT_ROLL_BACK, args)


@dataclass(frozen=True)
class RemovalPlan:
    """The instance and the snapshot."""

    instance: Instance
    snapshot: InstanceSnapshot


class LUInstanceSnapshotRemove(InstanceUnit[OpInstanceSnapshotRemove, RemovalPlan]):
    """Remove a snapshot: first from the configuration, with the steps that remove its data."""

    hook = "instance-snapshot"

    async def check_prereq(self, ctx: UnitContext) -> RemovalPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        wanted = snapshot_of(instance, self.op.snapshot)
        if instance.rolling_back == wanted.uuid:
            check_not_rolling_back(instance)
        check_online(primary_node(ctx, instance))
        return RemovalPlan(instance, wanted)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: RemovalPlan
    ) -> dict[str, str]:
        return {"SNAPSHOT_ACTION": "remove", "SNAPSHOT_NAME": plan.snapshot.name}

    async def execute(self, ctx: UnitContext, plan: RemovalPlan) -> Outcome:
        instance, uuid = plan.instance, plan.snapshot.uuid
        ctx.step(f"removing snapshot {plan.snapshot.name}")

        def without(now: Instance) -> Instance:
            return replace(now, snapshots=tuple(one for one in now.snapshots if one.uuid != uuid))

        async with ctx.undo_log() as undo:
            then: list[Step] = [*snapshot_removals(ctx.snapshot, instance, [plan.snapshot])]
            if (memory := plan.snapshot.memory) is not None:
                then.append(memory_removal(ctx.snapshot, instance, memory.disk))
            undo.commit(_changed(instance.uuid, without), then=then)
        return Outcome()
