"""Memory of a running guest on the node that it moves to: it may give some back, so that it fits."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, ExecError, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.devices import INSTANCE_MEMORY, MemoryArgs
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.node_choice import check_memory
from ganeti.units.undo.guests import SetMemory


@dataclass(frozen=True)
class Shrinking:
    """How much memory a guest has, and how much it is to keep, in MiB."""

    present: int
    wanted: int


def shrinking_to_fit(
    ctx: UnitContext,
    instance: Instance,
    present_mib: int,
    target: Node,
    info: NodeInfo,
    *,
    may_change: bool,
    what: str,
) -> Shrinking | None:
    """What a running guest must give back to fit on `target`; None if it fits as it is.

    Never below its least memory (minmem), and nothing unless `may_change`; else PrereqError.
    """
    if info.memory_free >= present_mib:
        return None
    least = min(filled_beparams(ctx.snapshot.cluster, instance)["minmem"], present_mib)
    check_memory(info, target, least, what)
    if not may_change:
        raise PrereqError(
            f"{what}: node {target.name} has {info.memory_free} MiB of memory free, {present_mib} MiB are needed;"
            f" the guest could give memory back, down to {least} MiB, but that is not allowed"
            " (--no-runtime-changes)",
            ErrorCode.NO_RESOURCES,
        )
    return Shrinking(present_mib, info.memory_free)


async def shrink(
    ctx: UnitContext, undo: UndoLog, instance: Instance, node: Node, change: Shrinking
) -> None:
    """Let a running guest give memory back; ExecError if it does not. Undone with the rest of the job."""
    spec = spec_of(ctx, instance)
    ctx.step(f"changing the memory of the guest from {change.present} to {change.wanted} MiB")
    back = MemoryArgs(instance=spec, memory=change.present)
    await undo.push(SetMemory(node=node.uuid, change=back))
    result = await ctx.call(node, INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=change.wanted))
    if result.memory > change.wanted:
        raise ExecError(
            f"{instance.name} still uses {result.memory} MiB of memory, {change.wanted} MiB would fit: its"
            " system does not give memory back; shut it down, or make room on the other node"
        )
