"""The move of all disks of a running guest to other storage of its node: `gnt-instance modify -t TEMPLATE`.

make the new disks                        undo: remove them
begin to copy, wait until in step         undo: end the copies
mark: only the node knows which are used  undo: ask the node, record its answer, remove the others
switch                                    the guest is paused for a moment
record the new disks                      then: remove the old ones
"""

import asyncio

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError, RpcFailed, RpcUnknown
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.disk_templates import DISK_TEMPLATES, DiskTemplate
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.progress import Progress
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.disk_moves import (
    DISK_MOVE_BEGIN,
    DISK_MOVE_OBSTACLES,
    DISK_MOVE_STATUS,
    DISK_MOVE_SWITCH,
    BeginDiskMoveArgs,
    DiskMoveArgs,
    DiskMoveStatus,
)
from ganeti.rpc.procedures.disks import DiskArgs
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.instance.disks import make_disk
from ganeti.units.relocation.switching import mark_switching, record_switched
from ganeti.units.telling import BAR_EVERY_S, FIRST_PROGRESS_S, MIB, PROGRESS_EVERY_S, Pace
from ganeti.units.undo.disk_moves import EndDiskMove, SettleDiskMove
from ganeti.units.undo.disks import RemoveDisk, removals

FIRST_LOOK_S, LOOK_EVERY_S = 0.05, 2.0
"""The first pause between two queries of the progress, and the longest one."""
AWAY_S = 120.0
"""The time for which the node may not answer; the copy continues meanwhile."""
REST_MIB = 32
"""Data that may be missing at the switch: the guest is paused while it is copied."""
HOPELESS_S = 300.0
"""The time after which the move of a guest that writes faster than the copy fails."""


async def check_can_move_live(
    ctx: UnitContext, instance: Instance, node: Node, template: DiskTemplate
) -> None:
    """Raise PrereqError if the disks cannot move to this template while the guest runs."""
    advice = f"; first run: gnt-instance shutdown {instance.name}"
    for one in (DISK_TEMPLATES[instance.disk_template], template):
        if one.mirrored or one.by_provider:
            raise PrereqError(
                f"{instance.name} runs, and disks do not move from or to template {one.name} while the guest runs"
                + advice,
                ErrorCode.WRONG_STATE,
            )
    asked = InstanceArgs(instance=spec_of(ctx, instance))
    if obstacles := await ctx.call(node, DISK_MOVE_OBSTACLES, asked):
        raise PrereqError(
            f"{instance.name} runs, and its disks cannot move meanwhile: {'; '.join(obstacles)}{advice}",
            ErrorCode.WRONG_STATE,
        )


def with_same_uuids(before: Instance, after: Instance) -> Instance:
    """Return `after` with the UUIDs of the present disks: the guest's devices keep their names."""
    pairs = zip(before.disks, after.disks, strict=True)
    return replace(
        after, disks=tuple(replace(new, uuid=old.uuid, grant=old.grant) for old, new in pairs)
    )


async def move_disks(
    ctx: UnitContext, before: Instance, after: Instance, node: Node, *, bandwidth_mib_s: int
) -> Outcome:
    """Carry out the move; until the guest is switched, a failure leaves everything unchanged."""
    old, new = spec_of(ctx, before), spec_of(ctx, after)
    token = ctx.ids.token()
    move = DiskMoveArgs(instance=old, token=token)
    end = EndDiskMove(node=node.uuid, instance=old, token=token)
    async with ctx.undo_log() as undo:
        ctx.step(f"making the new disks (template {after.disk_template})")
        await _make(ctx, undo, node, new)
        ctx.step("copying the disks while the guest runs")
        await undo.push(end)
        begin = BeginDiskMoveArgs(
            instance=old, token=token, disks=new.disks, bandwidth_mib_s=bandwidth_mib_s
        )
        await ctx.call(node, DISK_MOVE_BEGIN, begin)
        await _until_in_step(ctx, node, move)
        ctx.step("switching the guest to the new disks")
        settle = SettleDiskMove(
            node=node.uuid,
            instance=old,
            disks=tuple(disk.public for disk in new.disks),
            token=token,
        )
        await undo.turn(mark_switching(after, token), then=[settle])
        switched = await ctx.call(node, DISK_MOVE_SWITCH, move)
        ctx.info(f"the guest was paused for {switched.paused_ms} ms")
        undo.commit(
            record_switched(before.uuid, token, is_moved=True),
            then=[*removals(NodeUuid(node.uuid), old), end],
        )
    return Outcome([["disk_template", after.disk_template]])


async def _make(ctx: UnitContext, undo: UndoLog, node: Node, new: InstanceSpec) -> None:
    """Make the new disks. Every byte is copied to them, so none of them is filled with zeros first."""
    for disk in new.disks:
        ctx.info(f"disk {disk.index} ({disk.size} MiB) on {node.name}: {disk.place}")
        await undo.push(RemoveDisk(node=node.uuid, instance=new.name, disk=disk.public))
        await make_disk(ctx, node, DiskArgs(instance_name=new.name, disk=replace(disk, wipe=False)))


async def _until_in_step(ctx: UnitContext, node: Node, move: DiskMoveArgs) -> None:
    """Wait until the copies lack almost nothing, and report the progress; ExecError if the guest is too fast."""
    loop = asyncio.get_running_loop()
    began = answered = loop.time()
    pace, bar_at, say_at = Pace("disks", began), began + BAR_EVERY_S, began + FIRST_PROGRESS_S
    in_step_at: float | None = None
    try:
        while True:
            seen, now = await _look(ctx, node, move, answered), loop.time()
            if seen is not None:
                answered = now
                in_step_at = (in_step_at or now) if seen.in_step else None
                if seen.in_step and seen.total - seen.done <= REST_MIB * MIB:
                    return
                if now >= bar_at:
                    words, bar = pace.step(Progress(done=seen.done, total=seen.total), now)
                    ctx.run.progress(bar)
                    bar_at = now + BAR_EVERY_S
                    if now >= say_at:
                        ctx.info(words)
                        say_at = now + PROGRESS_EVERY_S
            if in_step_at is not None and now - in_step_at >= HOPELESS_S:
                raise ExecError(
                    f"the guest of {move.instance.name} writes faster than the new disks: raise --bandwidth, or move"
                    " the disks while it is down"
                )
            await asyncio.sleep(min(LOOK_EVERY_S, max(FIRST_LOOK_S, (now - began) / 10)))
    finally:
        ctx.run.progress(None)


async def _look(
    ctx: UnitContext, node: Node, move: DiskMoveArgs, answered: float
) -> DiskMoveStatus | None:
    """Return the progress; None if the node does not answer now, for example while its daemon restarts."""
    try:
        return await ctx.call(node, DISK_MOVE_STATUS, move)
    except RpcError as err:
        is_away = isinstance(err, RpcUnknown) or (
            isinstance(err, RpcFailed) and err.wire_error == UNREACHABLE
        )
        if not is_away or asyncio.get_running_loop().time() - answered >= AWAY_S:
            raise
        return None
