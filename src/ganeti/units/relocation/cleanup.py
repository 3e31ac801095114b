"""Cleanup after an interrupted migration or failover: `--cleanup`."""

from ganeti.base.errors import ExecError
from ganeti.jobs.executor import Outcome
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import primary_node, running_state
from ganeti.units.relocation.reconcile import BrokenMigration, reconcile_migration
from ganeti.units.relocation.switching import settle_disks


async def clean_up(ctx: UnitContext, instance: Instance) -> Outcome:
    """Reconcile an interrupted migration; without one, find the guest on all nodes and adopt it (F30)."""
    await ctx.run.started()
    if instance.switching is not None:
        key = f"{ctx.job_id}/{ctx.run.index}/settle"
        is_moved = await settle_disks(ctx.services, key, instance.uuid)
        ctx.info(f"{instance.name} has its {'new' if is_moved else 'old'} disks")
        return Outcome()
    primary = primary_node(ctx, instance)
    others = [node for node in ctx.snapshot.online_nodes() if node.uuid != primary.uuid]
    if instance.migrating_to is not None:
        holders = [ctx.snapshot.nodes[instance.migrating_to]]
    else:
        holders = [node for node in others if await running_state(ctx, node, instance) is not None]
    if len(holders) > 1:
        names = ", ".join(node.name for node in holders)
        raise ExecError(
            f"something of {instance.name} is on {names}; end all but one copy there first"
        )
    for node in holders:
        name = await _reconcile_with(ctx, instance, primary, node)
        ctx.info(f"{instance.name} is on {name or 'no node'}")
    if not holders:
        # A primary node that does not answer may have the guest: that must not look like success.
        here = None if primary.offline else await running_state(ctx, primary, instance)
        state = (
            "is marked offline" if primary.offline else f"says: {here.state if here else 'down'}"
        )
        ctx.info(f"nothing of {instance.name} was found beside {primary.name}, which {state}")
    return Outcome()


async def _reconcile_with(ctx: UnitContext, instance: Instance, primary: Node, other: Node) -> str:
    """Reconcile the primary node and another one, whichever of them sent the guest."""
    ends = [NodeUuid(primary.uuid), NodeUuid(other.uuid)]
    if await _was_sender(ctx, instance, other):
        ends.reverse()
    broken = BrokenMigration(
        InstanceUuid(instance.uuid),
        ends[0],
        ends[1],
        # Disks of an end are removed only if a migration is known to have made them.
        copied=DISK_TEMPLATES[instance.disk_template].is_local
        and instance.migrating_to is not None,
    )
    key = f"{ctx.job_id}/{ctx.run.index}/reconcile"
    return await reconcile_migration(ctx.services, key, broken)


async def _was_sender(ctx: UnitContext, instance: Instance, other: Node) -> bool:
    """Return whether the guest came from `other`; without a known migration, only a sender is `postmigrate`."""
    if instance.migrating_to is not None:
        return instance.handed_over
    found = await running_state(ctx, other, instance)
    return found is not None and found.state == "postmigrate"
