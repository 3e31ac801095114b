"""The move of all disks of a running guest to other storage of its node: `gnt-instance modify -t TEMPLATE`.

make the new disks on all their nodes     undo: remove them
begin to copy, wait until in step         undo: end the copies
wait until a mirror's copies are the same
mark: only the node knows which are used  undo: ask the node, record its answer, remove the others
switch                                    the guest is paused for a moment
record the new disks                      then: remove the old ones
"""

import asyncio

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError, RpcFailed, RpcUnknown
from ganeti.config.fill import instance_spec
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.model.disk_templates import DISK_TEMPLATES, DiskTemplate
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
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.instance.disks import (
    create_disks,
    is_mirrored,
    open_secondaries,
    wait_for_sync,
)
from ganeti.units.instance.grants import is_protected
from ganeti.units.relocation.switching import mark_switching, record_switched
from ganeti.units.telling import BAR_EVERY_S, FIRST_PROGRESS_S, MIB, PROGRESS_EVERY_S, Pace
from ganeti.units.undo.disk_moves import EndDiskMove, SettleDiskMove
from ganeti.units.undo.disks import RemoveDisk, removals

FIRST_LOOK_S, LOOK_EVERY_S, LEAST_LOOK_S = 0.05, 2.0, 0.02
"""The first pause between two queries of the progress, the longest and the shortest one."""
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
    if DISK_TEMPLATES[instance.disk_template].by_provider and template.by_provider:
        # Both volumes would have the UUID of the disk.
        raise PrereqError(
            f"{instance.name} runs, and its disks do not move between providers while the guest runs"
            + advice,
            ErrorCode.WRONG_STATE,
        )
    asked = InstanceArgs(instance=spec_of(ctx, instance))
    if obstacles := await ctx.call(node, DISK_MOVE_OBSTACLES, asked):
        raise PrereqError(
            f"{instance.name} runs, and its disks cannot move meanwhile: {'; '.join(obstacles)}{advice}",
            ErrorCode.WRONG_STATE,
        )


def check_protection(ctx: UnitContext, before: Instance, after: Instance) -> None:
    """Refuse a move that would change, under a running guest, which nodes may write its disks."""
    changes = is_protected(ctx.snapshot, before) != is_protected(ctx.snapshot, after)
    had = any(disk.grant for disk in before.disks)
    if changes or (had and (is_mirrored(before) or is_mirrored(after))):
        raise PrereqError(
            f"{before.name} runs, and the move from template {before.disk_template} to {after.disk_template} would"
            " change how automatic recovery protects it; first run:"
            f" gnt-instance shutdown {before.name}",
            ErrorCode.WRONG_STATE,
        )


def with_same_uuids(before: Instance, after: Instance) -> Instance:
    """Return `after` with the UUIDs of the present disks: the guest's devices keep their names."""
    pairs = zip(before.disks, after.disks, strict=True)
    return replace(
        after, disks=tuple(replace(new, uuid=old.uuid, grant=old.grant) for old, new in pairs)
    )


async def move_disks(
    ctx: UnitContext,
    before: Instance,
    after: Instance,
    node: Node,
    *,
    bandwidth_mib_s: int,
    wait: bool = True,
) -> Outcome:
    """Carry out the move; until the guest is switched, a failure leaves everything unchanged.

    With `wait`, the guest is switched to mirrored disks once their copies are the same.
    """
    old, new = spec_of(ctx, before), spec_of(ctx, after)
    token = ctx.ids.token()
    move = DiskMoveArgs(instance=old, token=token)
    public = replace(old, disks=tuple(disk.public for disk in old.disks))
    end = EndDiskMove(node=node.uuid, instance=public, token=token)
    async with ctx.undo_log() as undo:
        ctx.step(f"making the new disks (template {after.disk_template})")
        # Every byte is copied to them, so none of them is filled with zeros first.
        await create_disks(ctx, undo, after, wipe=False)
        await open_secondaries(ctx, after)
        ctx.step("copying the disks while the guest runs")
        await undo.push(end)
        begin = BeginDiskMoveArgs(
            instance=old, token=token, disks=new.disks, bandwidth_mib_s=bandwidth_mib_s
        )
        await ctx.call(node, DISK_MOVE_BEGIN, begin)
        await until_in_step(ctx, node, move)
        if wait and is_mirrored(after):
            ctx.step("waiting for the copies to be the same")
            await wait_for_sync(ctx, after)
            await until_in_step(ctx, node, move)
        ctx.step("switching the guest to the new disks")
        settle = SettleDiskMove(
            node=node.uuid,
            instance=public,
            disks=tuple(disk.public for disk in new.disks),
            token=token,
            elsewhere=(*_elsewhere(ctx, before), *_elsewhere(ctx, after)),
        )
        await undo.turn(mark_switching(after, token), then=[settle])
        switched = await ctx.call(node, DISK_MOVE_SWITCH, move)
        ctx.info(f"the guest was paused for {switched.paused_ms} ms")
        undo.commit(
            record_switched(before.uuid, token, is_moved=True),
            then=[*_elsewhere(ctx, before), *removals(NodeUuid(node.uuid), old), end],
        )
    return Outcome([["disk_template", after.disk_template]])


def _elsewhere(ctx: UnitContext, instance: Instance) -> list[RemoveDisk]:
    """Return the steps that remove the disks from the other nodes of an instance."""
    return [
        step
        for uuid in holders(instance)[1:]
        for step in removals(uuid, instance_spec(ctx.snapshot, instance, uuid))
    ]


async def until_in_step(ctx: UnitContext, node: Node, move: DiskMoveArgs) -> None:
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
            await asyncio.sleep(next_look_s(now - began, seen))
    finally:
        ctx.run.progress(None)


def next_look_s(waited: float, seen: DiskMoveStatus | None) -> float:
    """Return the pause before the next query: a tenth of the seconds waited, but only until the copy should be done."""
    usual = min(LOOK_EVERY_S, max(FIRST_LOOK_S, waited / 10))
    if seen is None or not seen.done:
        return usual
    left = waited * max(0, seen.total - seen.done) / seen.done
    # A guest that writes all the time keeps the copy nearly done.
    return min(usual, max(left, waited / 50, LEAST_LOOK_S))


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
