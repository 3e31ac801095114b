"""The check of the disks of all instances, to find those that should be open and are not."""

from dataclasses import dataclass, field

from ganeti.base.errors import RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.resolve import resolve_group, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.mirror_states import LOST
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, NodeUuid
from ganeti.model.opcodes.mirrors import OpClusterVerifyDisks, OpGroupVerifyDisks
from ganeti.rpc.procedures.disks import BLOCKDEV_OUTDATE, DiskArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.mirrors.judge import (
    OFFLINE,
    Problem,
    Verdict,
    activation,
    is_behind,
    problem,
)
from ganeti.units.mirrors.look import look


@dataclass
class DisksReport:
    """The findings, in the form of the opcode's result."""

    silent: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    missing: dict[str, list[list[str]]] = field(default_factory=dict)

    def plain(self) -> list[object]:
        return [self.silent, sorted(self.closed), self.missing]

    def note(self, instance: Instance, verdict: Verdict, found: Problem | None) -> None:
        """Add one disk."""
        for part, state in zip(verdict.parts, verdict.states, strict=True):
            if part.info is None and part.why != OFFLINE:
                self.silent[part.node] = part.why
            if state in LOST:
                path = part.info.path if part.info is not None else ""
                rows = self.missing.setdefault(instance.name, [])
                rows.append([part.node, path or f"disk/{verdict.disk}"])
        if found is not None and found.command == activation(instance.name):
            self.closed.add(instance.name)


class LUGroupVerifyDisks(LogicalUnit[OpGroupVerifyDisks, list[Instance]]):
    """Query every node of a group about the disks of instances that should run. No lock blocks other jobs."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [
            lock(Level.NODE_GROUP, resolve_group(snapshot, self.op.group_name).uuid, Mode.SHARED)
        ]

    async def check_prereq(self, ctx: UnitContext) -> list[Instance]:
        group = resolve_group(ctx.snapshot, self.op.group_name)
        nodes = ctx.snapshot.nodes
        return [
            one
            for one in ctx.snapshot.instances.values()
            if nodes[one.primary_node].group == group.uuid
            and one.admin_state is AdminState.UP
            and one.migrating_to is None
        ]

    async def execute(self, ctx: UnitContext, plan: list[Instance]) -> Outcome:
        report = DisksReport()
        verdicts = await look(ctx, plan)
        for instance in plan:
            for verdict in verdicts[InstanceUuid(instance.uuid)]:
                await self._judge(ctx, report, instance, verdict)
        # Missing disks cannot be activated, and only an administrator may decide to recreate them.
        report.closed -= report.missing.keys()
        return Outcome(report.plain())

    async def _judge(
        self, ctx: UnitContext, report: DisksReport, instance: Instance, verdict: Verdict
    ) -> None:
        found = problem(verdict, instance.name, is_up=True)
        report.note(instance, verdict, found)
        await self._outdate(ctx, instance, verdict)
        is_expected = any(part.why == OFFLINE for part in verdict.parts)
        if found is None or (is_expected and not found.command):
            return
        if found.command != activation(instance.name):
            ctx.warn(f"{instance.name}: {found}")

    @staticmethod
    async def _outdate(ctx: UnitContext, instance: Instance, verdict: Verdict) -> None:
        """Mark copies that lost their connection while their primary was written to: no node may use them (G13)."""
        newest = verdict.primary.copy
        for part in verdict.others(verdict.primary.node):
            if newest is None or part.copy is None or not part.is_open:
                continue
            if not is_behind(part.copy, newest):
                continue
            node = resolve_node(ctx.snapshot, part.node)
            disk = disk_spec(ctx.snapshot, instance, verdict.disk, NodeUuid(node.uuid))
            what = DiskArgs(instance_name=instance.name, disk=disk)
            name = f"disk/{verdict.disk} of {instance.name} on {node.name}"
            try:
                await ctx.call(node, BLOCKDEV_OUTDATE, what)
            except RpcError as err:
                ctx.warn(f"{name} is behind: {err.reason}")
            else:
                ctx.warn(
                    f"{name} misses the writes since its connection was lost; no node uses it until it is"
                    " synchronised"
                )


class LUClusterVerifyDisks(LogicalUnit[OpClusterVerifyDisks, list[str]]):
    """Submit a job for each node group."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return []

    async def check_prereq(self, ctx: UnitContext) -> list[str]:
        if self.op.group_name:
            return [resolve_group(ctx.snapshot, self.op.group_name).name]
        return sorted(group.name for group in ctx.snapshot.groups.values())

    async def execute(self, ctx: UnitContext, plan: list[str]) -> Outcome:
        del ctx
        strict = self.op.is_strict
        return Outcome(
            jobs=[[OpGroupVerifyDisks(group_name=name, is_strict=strict)] for name in plan]
        )
