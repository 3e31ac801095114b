"""Relocation of an instance while its guest is down: failover and move.

A node that does not answer may still run the guest. So either the old guest is proven down, or an
administrator has marked the node offline and so promised that it is dead (G5, F21).
"""

from ganeti.base.errors import ExecError, PrereqError, RpcError
from ganeti.layouts.places import Way
from ganeti.model.objects import Instance, InstanceUuid
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.instance.disks import close_secondaries, is_mirrored
from ganeti.units.instance.power import run_again, shut_down_source, start_instance, stopped
from ganeti.units.mirrors.opening import check_copy
from ganeti.units.relocation.location import record_location
from ganeti.units.relocation.plan import Plan, StoppedGuest
from ganeti.units.relocation.replace import replace_disks
from ganeti.units.relocation.steps import CopyDisks, CopyNvram, course


async def relocate_stopped(ctx: UnitContext, plan: Plan, guest: StoppedGuest) -> None:
    """Carry out a failover or a move; nothing changes until the old guest is proven down."""
    instance = plan.instance
    async with stopped(ctx, instance, restart=guest.start) as restart:
        await shut_down_source(ctx, instance, plan.source, guest.shutdown_timeout_s)
        if plan.new_secondary is not None:
            await replace_disks(ctx, plan.new_secondary, early_release=False)
        else:
            await _compare_again(ctx, plan, guest)
        await _switch(ctx, plan)
        restart.commit()
        moved = ctx.snapshot.instances[InstanceUuid(instance.uuid)]
        if guest.start:
            await _start(ctx, plan, moved)
        else:
            await close_secondaries(ctx, moved)


async def _compare_again(ctx: UnitContext, plan: Plan, guest: StoppedGuest) -> None:
    """Refuse if the link was cut since the copies were compared; the guest starts again on its former node."""
    if plan.force or not is_mirrored(plan.instance):
        return
    try:
        await check_copy(ctx, plan.instance, plan.target, to=plan.operation)
    except PrereqError:
        if guest.start and not plan.source.offline:
            await run_again(ctx, plan.instance)
        raise


async def _switch(ctx: UnitContext, plan: Plan) -> None:
    """Record the target as the guest's node: if the guest cannot start there, it is down, and known to be down."""
    instance, source, target = plan.instance, plan.source, plan.target
    async with course(ctx) as steps:
        if plan.way is Way.COPY:
            spec = spec_of(ctx, instance)
            await steps.take(CopyDisks(spec, source, target, plan.compress, plan.bandwidth_mib_s))
        if plan.leaves_nvram(ctx.snapshot) and source.offline:
            ctx.warn(f"its NVRAM is on {source.name}; it starts with an empty NVRAM")
        elif plan.leaves_nvram(ctx.snapshot):
            await steps.take(CopyNvram(instance, source, target))
        if plan.way is Way.COPY:
            ctx.step(f"removing the disks on {source.name}")
        is_closed = not source.offline
        steps.commit(
            record_location(instance.uuid, target.uuid, is_closed=is_closed, force=plan.force)
        )


async def _start(ctx: UnitContext, plan: Plan, moved: Instance) -> None:
    name = plan.target.name
    ctx.step(f"starting the instance on {name}")
    try:
        await start_instance(ctx, moved, force=plan.force)
    except (RpcError, ExecError) as err:
        raise ExecError(
            f"{moved.name} is on {name} now, but did not start: {err}; after the fix:"
            f" gnt-instance startup {moved.name}"
        ) from err
