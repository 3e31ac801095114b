"""The steps of a relocation: the undo of each step is recorded before its act.

If the block fails, or the master dies in it, the recorded undo of all steps runs, the last one first. Once
`commit` has recorded the change of the configuration, the leftovers of the steps are removed instead.
"""

import abc
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ganeti.base.errors import ExecError
from ganeti.jobs.executor import Change
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.rpc.procedures.devices import INSTANCE_MEMORY, MemoryArgs
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.hardware import NVRAM_READ, NVRAM_WRITE, WriteNvramArgs
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.instance.disks import create_disks, make_disk
from ganeti.units.instance.nvram import forget_nvram_step
from ganeti.units.relocation.copying import DiskCopies
from ganeti.units.relocation.plan import Shrinking
from ganeti.units.telling import MIB
from ganeti.units.undo.disks import RemoveDisk, removals
from ganeti.units.undo.guests import SetMemory
from ganeti.units.undo.step import Step

R = TypeVar("R")


class RelocationStep(abc.ABC, Generic[R]):
    """One act, its undo, and its leftovers once the relocation has succeeded."""

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        """Return the undo steps to record before the act, the first one to undo last."""
        del ctx
        return ()

    @abc.abstractmethod
    async def act(self, ctx: UnitContext, undo: UndoLog) -> R:
        """Do it; GanetiError if it fails. `undo` is for acts of many parts, each with its own undo."""

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        """Return the steps that remove what the relocation makes superfluous, the first one to run last."""
        del ctx
        return ()


class Course:
    """The steps of one relocation so far."""

    def __init__(self, ctx: UnitContext, undo: UndoLog) -> None:
        self._ctx = ctx
        self._undo = undo
        self._deferred: list[Step] = []

    async def take(self, step: RelocationStep[R]) -> R:
        """Record the undo of a step, then do it."""
        for one in step.undo(self._ctx):
            await self._undo.push(one)
        self._deferred += step.deferred(self._ctx)
        return await step.act(self._ctx, self._undo)

    def commit(self, change: Change) -> None:
        """Change the configuration when the block ends; in the same transaction the deferred steps replace the undo."""
        self._undo.commit(change, then=self._deferred)

    async def turn(self, change: Change) -> None:
        """Change the configuration now: from here on the end of the block, good or bad, runs the deferred steps."""
        await self._undo.turn(change, then=self._deferred)


@contextlib.asynccontextmanager
async def course(ctx: UnitContext) -> AsyncIterator[Course]:
    """A block of steps; it undoes them if it ends without `commit`, or with an error."""
    async with ctx.undo_log() as undo:
        yield Course(ctx, undo)


@dataclass(frozen=True)
class CopyDisks(RelocationStep[None]):
    """Make the disks of an instance on another node and copy the data; the old ones become superfluous."""

    instance: InstanceSpec
    source: Node
    target: Node
    compress: str
    bandwidth_mib_s: int = 0

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        copies = DiskCopies(
            ctx,
            undo,
            self.instance,
            self.source,
            self.target,
            self.compress,
            rate=self.bandwidth_mib_s * MIB,
        )
        for disk, removal in zip(self.instance.disks, self._removals(self.target), strict=True):
            ctx.step(f"copying disk {disk.index} ({disk.size} MiB)")
            await undo.push(removal)
            await make_empty_disk(ctx, self.target, self.instance.name, disk)
            await copies.copy(disk, disk)

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return self._removals(self.source)

    def _removals(self, node: Node) -> Sequence[Step]:
        return removals(NodeUuid(node.uuid), self.instance)


@dataclass(frozen=True)
class MakeDisks(RelocationStep[None]):
    """Make disks of an instance on some nodes, or on all of its own."""

    instance: Instance
    nodes: Sequence[NodeUuid] | None = None
    only: Collection[str] | None = None
    """UUIDs of disks; None: all."""
    superfluous: Sequence[Step] = ()
    """The steps that remove the replaced disks."""

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        await create_disks(ctx, undo, self.instance, nodes=self.nodes, only=self.only)

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return self.superfluous


@dataclass(frozen=True)
class ReplacePart(RelocationStep[None]):
    """Make a new layer of a disk on the same node, to replace an old one."""

    instance: str
    node: Node
    new: DiskSpec
    old: DiskSpec

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return [self._removal(self.new)]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        del undo
        await make_disk(ctx, self.node, DiskArgs(instance_name=self.instance, disk=self.new))

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return [self._removal(self.old)]

    def _removal(self, layer: DiskSpec) -> Step:
        return RemoveDisk(node=self.node.uuid, instance=self.instance, disk=layer)


async def make_empty_disk(ctx: UnitContext, node: Node, instance: str, disk: DiskSpec) -> None:
    """Make a disk after removing the leftovers of an earlier attempt, which would not read as zeros."""
    what = DiskArgs(instance_name=instance, disk=disk)
    await ctx.call(node, BLOCKDEV_REMOVE, what)
    await make_disk(ctx, node, what)


@dataclass(frozen=True)
class CopyNvram(RelocationStep[None]):
    """Copy the NVRAM of an instance that is down to another node."""

    instance: Instance
    source: Node
    target: Node

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        return [forget_nvram_step(ctx, self.instance, self.target)]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        del undo
        spec = spec_of(ctx, self.instance)
        found = await ctx.call(self.source, NVRAM_READ, InstanceArgs(instance=spec))
        if found.content is not None:
            args = WriteNvramArgs(instance=spec, content=found.content)
            await ctx.call(self.target, NVRAM_WRITE, args)

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        return [forget_nvram_step(ctx, self.instance, self.source)]


@dataclass(frozen=True)
class Shrink(RelocationStep[None]):
    """Make a running guest give memory back, so that it fits on the target."""

    instance: Instance
    node: Node
    change: Shrinking

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        return [SetMemory(node=self.node.uuid, change=self._memory(ctx, self.change.present))]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        del undo
        change = self.change
        ctx.step(f"changing the memory of the guest from {change.present} to {change.wanted} MiB")
        result = await ctx.call(self.node, INSTANCE_MEMORY, self._memory(ctx, change.wanted))
        if result.memory > change.wanted:
            raise ExecError(
                f"{self.instance.name} still uses {result.memory} MiB of memory instead of {change.wanted} MiB: its"
                " system does not give memory back; shut it down, or free memory on the other node"
            )

    def _memory(self, ctx: UnitContext, mib: int) -> MemoryArgs:
        return MemoryArgs(instance=spec_of(ctx, self.instance), memory=mib)
