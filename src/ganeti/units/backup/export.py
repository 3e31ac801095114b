"""Export of an instance to a directory on a node."""

from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import (
    ErrorCode,
    ExecError,
    InputError,
    PrereqError,
    RpcError,
)
from ganeti.config.fill import filled_beparams, instance_spec, os_facts
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.compression import NONE, check_allowed, check_compression
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.backup import LOCAL, REMOTE, OpBackupExport
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.protocols.export_description import (
    RAW,
    SCRIPT,
    ExportDescription,
    changed_by_export,
    check_export_name,
    format_description,
)
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_LIST,
    ExportArgs,
    FinishExportArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.images import EXPORT_PACK
from ganeti.rpc.procedures.streams import (
    SNAPSHOT_POSSIBLE,
    SNAPSHOT_TAKE,
    DiskEnd,
    DiskOf,
    DumpEnd,
    SnapshotArgs,
    StreamResult,
)
from ganeti.units.backup.description import described
from ganeti.units.backup.query import all_exports
from ganeti.units.backup.remote_export import (
    RemotePlan,
    check_remote_arguments,
    plan_remote,
    send_all,
)
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    check_shutdown_timeout,
    is_running,
    primary_node,
    set_admin_state,
)
from ganeti.units.instance.install import exports_by_script, osparams_with
from ganeti.units.instance.power import run_again, shut_down_source
from ganeti.units.instance.remove import LUInstanceRemove
from ganeti.units.instance.snapshot_checks import check_no_snapshots, check_not_rolling_back
from ganeti.units.mirrors.opening import disks_ready
from ganeti.units.node_choice import check_online
from ganeti.units.telling import showing
from ganeti.units.transfers import SLACK, Load, carry, make_route
from ganeti.units.undo.instances import StartAgain
from ganeti.units.undo.transfers import DropSnapshot, RemoveExport

MIB = 1024 * 1024
NOT_POSSIBLE = ("zero_free_space", "zeroing_timeout_fixed", "zeroing_timeout_per_mib")
"""Options that change the guest's disks: they would need a helper system in the guest."""


@dataclass(frozen=True)
class ExportPlan:
    """The instance, its source and its target."""

    instance: Instance
    source: Node
    target: Node
    was_running: bool
    snapshots: bool
    by_script: bool
    osparams: dict[str, str] = field(repr=False)


class LUBackupExport(InstanceUnit[OpBackupExport, ExportPlan | RemotePlan]):
    """Write the disks and the description of an instance to a node, or send them to another cluster.

    All, or nothing.
    """

    hook = "instance-export"

    def check_arguments(self) -> None:
        op = self.op
        if op.mode not in (LOCAL, REMOTE):
            raise InputError(f"must be {LOCAL} or {REMOTE}", "mode")
        for name in NOT_POSSIBLE:
            if getattr(op, name):
                raise InputError(
                    "writing to the guest's disks is not supported; exports omit zeros in any case",
                    name,
                )
        if op.mode == REMOTE:
            check_remote_arguments(op)
        else:
            self._check_local_arguments()
        check_compression(op.compress)
        if op.ova and (op.mode == REMOTE or op.compress != NONE):
            raise InputError(
                "only for an export to a node, with dumps that are not compressed", "ova"
            )
        check_shutdown_timeout(op.shutdown_timeout, "shutdown_timeout")
        if op.remove_instance and not op.shutdown:
            raise InputError(
                "an export of a running instance cannot remove the instance",
                "remove_instance",
            )
        if op.ignore_remove_failures and not op.remove_instance:
            raise InputError("only with remove_instance", "ignore_remove_failures")

    def _check_local_arguments(self) -> None:
        op = self.op
        for name in ("x509_key_name", "destination_x509_ca"):
            if getattr(op, name) is not None:
                raise InputError("is for moves to another cluster", name)
        if not isinstance(op.target_node_uuid or op.target_node, str):
            raise InputError("name the node for the export (--node)", "target_node")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        if self.op.mode == REMOTE:
            return super().declare_locks(snapshot)
        # Older exports of the instance, on any node, are removed.
        return [
            lock(Level.INSTANCE, self.instance(snapshot).name),
            lock(Level.NODE, ALL, Mode.SHARED),
        ]

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: ExportPlan | RemotePlan
    ) -> dict[str, str]:
        del snapshot, instance
        target = plan.target.name if isinstance(plan, ExportPlan) else ""
        return {
            "EXPORT_MODE": self.op.mode,
            "EXPORT_NODE": target,
            "EXPORT_DO_SHUTDOWN": text(self.op.shutdown),
            "SHUTDOWN_TIMEOUT": text(self.op.shutdown_timeout),
            "REMOVE_INSTANCE": text(self.op.remove_instance),
        }

    def hook_nodes(self, before: Instance, plan: ExportPlan | RemotePlan) -> HookNodes:
        target = [NodeUuid(plan.target.uuid)] if isinstance(plan, ExportPlan) else []
        nodes = [before.primary_node, *target]
        return nodes, nodes

    async def check_prereq(self, ctx: UnitContext) -> ExportPlan | RemotePlan:
        op, instance = self.op, self.instance(ctx.snapshot)
        check_allowed(op.compress, ctx.snapshot.cluster.compression_tools)
        if op.mode == REMOTE:
            return await plan_remote(ctx, op, instance)
        check_not_migrating(instance)
        check_not_rolling_back(instance)
        if op.remove_instance:
            check_no_snapshots(instance, "removed by its export", "it does not contain them")
        source = primary_node(ctx, instance)
        check_online(source)
        target = resolve_node(ctx.snapshot, str(op.target_node_uuid or op.target_node))
        check_online(target)
        if target.drained:
            raise PrereqError(
                f"node {target.name} is drained and accepts no exports; choose another",
                ErrorCode.WRONG_STATE,
            )
        check_export_name(instance.name)
        was_running = await is_running(ctx, source, instance)
        snapshots = await self._has_snapshots(ctx, instance, source)
        if was_running and not op.shutdown and not snapshots:
            raise PrereqError(
                f"the disks of {instance.name} have no snapshots, so it must be down while it is"
                " exported; try again without --noshutdown",
                ErrorCode.WRONG_STATE,
            )
        by_script = not op.ova and await exports_by_script(ctx, source, instance)
        await self._check_space(ctx, instance, target)
        plan = ExportPlan(
            instance,
            source,
            target,
            was_running,
            snapshots and was_running and not op.long_sleep,
            by_script,
            osparams_with(ctx, instance),
        )
        self._check_description(ctx, plan)
        return plan

    def _check_description(self, ctx: UnitContext, plan: ExportPlan) -> None:
        """Refuse data that no import could read, before the guest is stopped and disks are copied for hours."""
        nothing = [StreamResult(data_bytes=0, seconds=0.0)] * len(plan.instance.disks)
        described = self._described(ctx, plan, nothing)
        memory = filled_beparams(ctx.snapshot, plan.instance)
        for name in changed_by_export(described, memory):
            ctx.warn(f"{name}: an export cannot store blanks at the ends; remove them")

    @staticmethod
    async def _has_snapshots(ctx: UnitContext, instance: Instance, node: Node) -> bool:
        for disk in instance_spec(ctx.snapshot, instance).disks:
            asked = DiskOf(instance_name=instance.name, disk=disk)
            if not (await ctx.call(node, SNAPSHOT_POSSIBLE, asked)).possible:
                return False
        return bool(instance.disks)

    async def _check_space(self, ctx: UnitContext, instance: Instance, target: Node) -> None:
        """Refuse an export that does not fit; the effect of compression is unknown."""
        try:
            place = await ctx.call(target, EXPORT_LIST, Nothing())
        except RpcError as err:
            raise PrereqError(f"cannot ask {err}", ErrorCode.ENVIRONMENT) from err
        needed = sum(disk.size for disk in instance.disks)
        if self.op.compress == NONE and place.free < needed:
            raise PrereqError(
                f"node {target.name} has {place.free} MiB free for exports, {needed} MiB are needed;"
                " free some space, choose another node, or compress (--compress)",
                ErrorCode.NO_RESOURCES,
            )

    async def execute(self, ctx: UnitContext, plan: ExportPlan | RemotePlan) -> Outcome:
        if isinstance(plan, RemotePlan):
            return await self._send(ctx, plan)
        return await self._write(ctx, plan)

    async def _send(self, ctx: UnitContext, plan: RemotePlan) -> Outcome:
        """Send the instance to another cluster. Its guest may run there, so it stays down here, or is removed."""
        await send_all(ctx, self.op, plan)
        result = [True, [True] * len(plan.disks)]
        if self.op.remove_instance:
            return await self._remove(ctx, plan.instance, result)
        if plan.was_running:
            ctx.info(
                f"{plan.instance.name} stays down here, because it is now in the other cluster"
            )
        down = set_admin_state(InstanceUuid(plan.instance.uuid), AdminState.DOWN)
        return Outcome(result, change=down)

    async def _write(self, ctx: UnitContext, plan: ExportPlan) -> Outcome:
        instance = plan.instance
        must_stop = plan.was_running and self.op.shutdown
        snapshots = dict[int, str]()
        async with ctx.undo_log() as undo:
            if must_stop:
                start = StartAgain(instance=instance.uuid)
                await undo.push(start, also_after=not self.op.remove_instance)
                await shut_down_source(ctx, instance, plan.source, self.op.shutdown_timeout)
            if plan.snapshots:
                snapshots = await self._take_snapshots(ctx, undo, plan)
                if must_stop and not self.op.remove_instance:
                    await run_again(ctx, instance)
            await self._export(ctx, undo, plan, snapshots)
            undo.commit()
        if self.op.ova:
            await self._pack(ctx, plan)
        await self._remove_others(ctx, plan)
        result = [True, [True] * len(instance.disks)]
        if self.op.remove_instance:
            return await self._remove(ctx, instance, result)
        return Outcome(result)

    @staticmethod
    async def _pack(ctx: UnitContext, plan: ExportPlan) -> None:
        name = plan.instance.name
        ctx.step(f"packing the export as {name}.ova")
        try:
            async with showing(ctx, plan.target, f"{name}.ova"):
                await ctx.call(plan.target, EXPORT_PACK, ExportArgs(export=name))
        except RpcError as err:
            raise ExecError(
                f"{err}; the export itself is complete; after the fix, `ovfconverter export` on"
                f" {plan.target.name} packs it"
            ) from err

    async def _take_snapshots(
        self, ctx: UnitContext, undo: UndoLog, plan: ExportPlan
    ) -> dict[int, str]:
        """Return the path of each disk's snapshot, by the number of the disk."""
        token, paths = ctx.ids.token(4), dict[int, str]()
        for disk in instance_spec(ctx.snapshot, plan.instance).disks:
            name = f"export-{token}-{disk.index}"  # several disks may be in one volume group
            ctx.step(f"taking a snapshot of disk {disk.index}")
            step = DropSnapshot(
                node=plan.source.uuid, instance=plan.instance.name, disk=disk, name=name
            )
            await undo.push(step, also_after=True)
            args = SnapshotArgs(instance_name=plan.instance.name, disk=disk, name=name)
            taken = await ctx.call(plan.source, SNAPSHOT_TAKE, args)
            paths[disk.index] = taken.path
        return paths

    async def _export(
        self, ctx: UnitContext, undo: UndoLog, plan: ExportPlan, snapshots: dict[int, str]
    ) -> None:
        """Write everything to the target and publish it under its name."""
        name, target = plan.instance.name, plan.target
        await undo.push(RemoveExport(node=target.uuid, instance=name))
        await ctx.call(target, EXPORT_BEGIN, ExportArgs(export=name))
        route = await make_route(ctx, undo, name, plan.source, target)
        spec = instance_spec(ctx.snapshot, plan.instance)
        results = []
        async with disks_ready(ctx, plan.instance):
            for disk in spec.disks:
                ctx.step(f"exporting disk {disk.index} ({disk.size} MiB) to {target.name}")
                load = self._load(ctx, plan, disk.index, snapshots.get(disk.index, ""))
                results.append(await carry(ctx, undo, route, load))
        ctx.step("finishing the export")
        text = self._description(ctx, plan, results)
        await ctx.call(target, EXPORT_FINISH, FinishExportArgs(export=name, config=text))

    def _load(self, ctx: UnitContext, plan: ExportPlan, index: int, snapshot: str) -> Load:
        spec = instance_spec(ctx.snapshot, plan.instance)
        disk = spec.disks[index]
        by_script = plan.by_script
        return Load(
            what=f"disk {index}",
            size=disk.size * MIB,
            limit=disk.size * MIB * 9 // 8 + SLACK,
            source=DiskEnd(
                instance=spec,
                index=index,
                os=plan.instance.os if by_script else "",
                osparams=plan.osparams if by_script else {},
                facts=os_facts(ctx.snapshot, plan.instance),
                snapshot=snapshot,
                debug=int(self.op.debug_level > 0),
            ),
            target=DumpEnd(export=spec.name, file=disk.uuid, unfinished=True),
            pack=self.op.compress,
            digests=True,
        )

    def _description(self, ctx: UnitContext, plan: ExportPlan, results: list[StreamResult]) -> str:
        memory = filled_beparams(ctx.snapshot, plan.instance)
        return format_description(self._described(ctx, plan, results), memory)

    def _described(
        self, ctx: UnitContext, plan: ExportPlan, results: list[StreamResult]
    ) -> ExportDescription:
        return described(
            plan.instance,
            plan.source.name,
            int(ctx.now),
            results,
            compression=self.op.compress,
            data=SCRIPT if plan.by_script else RAW,
        )

    async def _remove_others(self, ctx: UnitContext, plan: ExportPlan) -> None:
        """Keep only the new export of an instance."""
        name = plan.instance.name
        nodes = [node for node in ctx.snapshot.online_nodes() if node.uuid != plan.target.uuid]
        answers = await all_exports(ctx, nodes)
        for node in nodes:
            answer = answers[NodeUuid(node.uuid)]
            if isinstance(answer, RpcError) or name not in answer.names:
                continue
            ctx.step(f"removing the older export on {node.name}")
            async with ctx.undo_log() as undo:
                # Nothing is undone: a later attempt repeats a failed step.
                old = RemoveExport(node=node.uuid, instance=name, unfinished=False)
                undo.commit(then=[old])

    async def _remove(self, ctx: UnitContext, instance: Instance, result: list[Any]) -> Outcome:
        ctx.step(f"removing instance {instance.name}")
        op = OpInstanceRemove(
            instance_name=instance.name,
            ignore_failures=self.op.ignore_remove_failures,
            shutdown_timeout=self.op.shutdown_timeout,
        )
        removed = await LUInstanceRemove(op).execute(ctx, instance)
        return Outcome(result, change=removed.change)
