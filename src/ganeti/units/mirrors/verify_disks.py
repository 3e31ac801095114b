"""Looking at the disks of all instances, and finding those that should be open and are not."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ganeti.base.errors import RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.mirrors import OpClusterVerifyDisks, OpGroupVerifyDisks
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_OUTDATE,
    DISKS_INFO,
    DiskArgs,
    DiskInfo,
    DisksArgs,
    SyncStatus,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.mirrors.judge import is_behind

PER_CALL = 50
"""Disks about which a node is asked at once."""

Asked = list[tuple[Instance, int]]


@dataclass
class DisksReport:
    """What was found; as the opcode's result has it."""

    silent: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    missing: dict[str, list[list[str]]] = field(default_factory=dict)
    copies: dict[tuple[InstanceUuid, int], dict[NodeUuid, SyncStatus]] = field(default_factory=dict)
    """How each part of mirrored disks is: not in the result."""

    def plain(self) -> list[object]:
        return [self.silent, sorted(self.closed), self.missing]


def asked_of(instances: Iterable[Instance]) -> Mapping[NodeUuid, Asked]:
    """Whom to ask about which disks: those of instances that are to run, on all nodes that hold a part."""
    found: dict[NodeUuid, Asked] = {}
    for instance in instances:
        template = DISK_TEMPLATES[instance.disk_template]
        if instance.admin_state is not AdminState.UP or instance.migrating_to is not None:
            continue
        for uuid in holders(instance) if template.mirrored else [instance.primary_node]:
            found.setdefault(uuid, []).extend((instance, at) for at in range(len(instance.disks)))
    return found


def note(report: DisksReport, node: Node, asked: Asked, infos: Iterable[DiskInfo]) -> None:
    """Add what one node said of the disks that it was asked about."""
    for (instance, at), info in zip(asked, infos, strict=True):
        mirrored = DISK_TEMPLATES[instance.disk_template].mirrored
        if not info.exists or info.problem:
            rows = report.missing.setdefault(instance.name, [])
            rows.append([node.name, info.path or f"disk/{at}"])
        elif mirrored and not (info.sync and info.sync.connected):
            report.closed.add(instance.name)
            if info.sync:
                copies = report.copies.setdefault((InstanceUuid(instance.uuid), at), {})
                copies[NodeUuid(node.uuid)] = info.sync


class LUGroupVerifyDisks(LogicalUnit[OpGroupVerifyDisks, list[Instance]]):
    """Ask every node of a group about the disks of instances that are to run. No lock keeps others waiting."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [
            lock(Level.NODE_GROUP, resolve_group(snapshot, self.op.group_name).uuid, Mode.SHARED)
        ]

    async def check_prereq(self, ctx: UnitContext) -> list[Instance]:
        group = resolve_group(ctx.snapshot, self.op.group_name)
        nodes = ctx.snapshot.nodes
        found = ctx.snapshot.instances.values()
        return [one for one in found if nodes[one.primary_node].group == group.uuid]

    async def execute(self, ctx: UnitContext, plan: list[Instance]) -> Outcome:
        report = DisksReport()
        asked = asked_of(plan)
        nodes = {uuid: ctx.snapshot.nodes[uuid] for uuid in asked}
        await asyncio.gather(
            *(
                self._ask(ctx, report, nodes[uuid], wanted)
                for uuid, wanted in asked.items()
                if not nodes[uuid].offline
            )
        )
        await self._outdate(ctx, report)
        # What is missing cannot be activated, and to make it anew is for a person to decide.
        report.closed -= report.missing.keys()
        return Outcome(report.plain())

    @staticmethod
    async def _outdate(ctx: UnitContext, report: DisksReport) -> None:
        """Tell copies that were cut off while their primary was written to: nobody may fail over to them (G13)."""
        for (uuid, at), copies in report.copies.items():
            instance = ctx.snapshot.instances.get(uuid)
            newest = copies.get(instance.primary_node) if instance else None
            if instance is None or newest is None:
                continue
            for other in (one for one in copies if is_behind(copies[one], newest)):
                node = ctx.snapshot.nodes[other]
                disk = disk_spec(ctx.snapshot, instance, at, other)
                what = DiskArgs(instance_name=instance.name, disk=disk)
                try:
                    await ctx.call(node, BLOCKDEV_OUTDATE, what)
                except RpcError as err:
                    ctx.warn(f"disk/{at} of {instance.name} on {node.name} is behind: {err.reason}")
                else:
                    ctx.warn(
                        f"disk/{at} of {instance.name} on {node.name} lacks what was written since it was cut off;"
                        " it is not used before it is brought up to date"
                    )

    @staticmethod
    async def _ask(ctx: UnitContext, report: DisksReport, node: Node, wanted: Asked) -> None:
        for start in range(0, len(wanted), PER_CALL):
            some = wanted[start : start + PER_CALL]
            disks = [
                DiskArgs(
                    instance_name=instance.name,
                    disk=disk_spec(ctx.snapshot, instance, at, NodeUuid(node.uuid)),
                )
                for instance, at in some
            ]
            try:
                infos = await ctx.call(node, DISKS_INFO, DisksArgs(disks=disks))
            except RpcError as err:
                report.silent[node.name] = err.reason
                return
            note(report, node, some, infos)


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
