"""Which copies of mirrored disks count as current, as jobs and the master change it (D3, D5)."""

import asyncio
from collections.abc import Callable, Collection

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.names import AdminState
from ganeti.model.objects import Grant, Instance, InstanceUuid, NodeUuid
from ganeti.recovery.grants import (
    CopyRecord,
    GrantRefused,
    drop_peer,
    join_current,
    keep_only,
    leave_current,
)
from ganeti.rpc.procedures.disks import COPY_JOINS, DISK_GRANTED, GrantArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.grants import (
    grant_alone,
    grant_closed,
    is_current,
    is_protected,
    why_alone,
    with_present_grants,
)

JOIN_S = 60.0
"""Time for a synchronised copy to count as current: the next heartbeats bring the report of the writer."""
LOOK_EVERY_S = 0.5


async def leave_copies(ctx: UnitContext, instance: Instance, *, is_up: bool) -> Instance:
    """Count only the primary node's copies as current, before a job takes the others away; return the instance so.

    Writes of a running guest wait for the others no longer. PrereqError if the primary node's copies are not current.
    """
    alone = await grant_alone(ctx.config, await grant_closed(ctx.config, instance))
    node = ctx.snapshot.nodes[alone.primary_node]
    for disk in alone.disks if is_up else ():
        if disk.grant is not None:
            await ctx.call(node, DISK_GRANTED, GrantArgs(disk=disk.uuid, grant=disk.grant))
    return alone


async def keep_copies(
    ctx: UnitContext, instance: Instance, node: NodeUuid, disks: Collection[int], *, is_up: bool
) -> Instance:
    """Count only the copies on a node as current, of those disks that have grants; return the instance so.

    An administrator has chosen them, whatever the other copies have.
    """

    def change(draft: Draft) -> None:
        now = draft.instances[InstanceUuid(instance.uuid)]
        kept = tuple(
            replace(disk, grant=keep_only(disk.grant, node, draft.epoch))
            if disk.grant is not None and at in disks
            else disk
            for at, disk in enumerate(now.disks)
        )
        draft.put(replace(now, disks=kept))

    if any(disk.grant is not None for disk in instance.disks):
        await ctx.config.change(change)
    now = with_present_grants(ctx.config, instance)
    for at in disks if is_up else ():
        disk = now.disks[at]
        if disk.grant is not None:
            args = GrantArgs(disk=disk.uuid, grant=disk.grant)
            await ctx.call(ctx.snapshot.nodes[node], DISK_GRANTED, args)
    return now


def lacks_copy(ctx: UnitContext, instance: Instance) -> bool:
    """Return whether a copy of the disks of a running protected instance does not count as current."""
    now = _present(ctx, instance)
    is_up = now.admin_state is AdminState.UP
    return (
        is_up
        and is_protected(ctx.snapshot, now)
        and not all(is_current(now, uuid) for uuid in now.secondary_nodes)
    )


async def await_current(ctx: UnitContext, instance: Instance) -> str:
    """Wait until the synchronised copies of a running protected guest count as current; return why they do not, or ''.

    Their writer reports them itself (D3). Its reports are served although this job holds the instance, because the job
    takes no copy away meanwhile.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + (JOIN_S if _present(ctx, instance).under_lease else 0.0)
    with ctx.services.recovery.letting_join(InstanceUuid(instance.uuid)):
        while lacks_copy(ctx, instance):
            if loop.time() >= ends_at:
                return why_alone(ctx.snapshot, _present(ctx, instance))
            await asyncio.sleep(LOOK_EVERY_S)
    return ""


def _present(ctx: UnitContext, instance: Instance) -> Instance:
    return ctx.snapshot.instances[InstanceUuid(instance.uuid)]


async def join_copies(ctx: UnitContext, instance: Instance) -> None:
    """Count the synchronised copies of the disks of a stopped guest as current."""
    now = with_present_grants(ctx.config, instance)
    for disk in now.disks:
        for uuid in instance.secondary_nodes if disk.grant is not None else ():
            if disk.grant is None or uuid in disk.grant.current:
                continue
            args = GrantArgs(disk=disk.uuid, grant=disk.grant)
            await ctx.call(ctx.snapshot.nodes[uuid], COPY_JOINS, args)
            await ctx.config.change(copy_joined(instance.uuid, args, uuid))


def copy_joined(instance: InstanceUuid, synchronised: GrantArgs, node: NodeUuid) -> Change:
    """Count the copy of a node as current, which was synchronised under a grant; PrereqError if that is over."""

    def joined(grant: Grant, epoch: int) -> Grant:
        record = CopyRecord(synchronised.grant.generation, grant.current)
        return join_current(grant, node, record, epoch)

    return _regranted(instance, synchronised.disk, joined)


def peer_dropped(instance: InstanceUuid, disk: str, writer: NodeUuid, generation: int) -> Change:
    """Count only the writer's copy as current, as the writer asks in that generation; PrereqError if that is over."""
    return _regranted(
        instance, disk, lambda grant, epoch: drop_peer(grant, writer, generation, epoch)
    )


def writer_left(instance: InstanceUuid, disk: str, writer: NodeUuid, generation: int) -> Change:
    """Count only the other copy as current, as the writer asks in that generation; PrereqError if that is over."""
    return _regranted(
        instance, disk, lambda grant, epoch: leave_current(grant, writer, generation, epoch)
    )


def _regranted(instance: InstanceUuid, disk: str, regrant: Callable[[Grant, int], Grant]) -> Change:
    """Change the grant of one disk of an instance, in the order of commits (D8)."""

    def change(draft: Draft) -> None:
        now = draft.instances.get(instance)
        found = [one for one in now.disks if one.uuid == disk] if now is not None else []
        if now is None or not found or found[0].grant is None:
            raise PrereqError(f"disk {disk} has no grant any more", ErrorCode.WRONG_STATE)
        try:
            granted = replace(found[0], grant=regrant(found[0].grant, draft.epoch))
        except GrantRefused as err:
            raise PrereqError(f"disk {disk}: {err}", ErrorCode.WRONG_STATE) from err
        disks = tuple(granted if one.uuid == disk else one for one in now.disks)
        draft.put(replace(now, disks=disks))

    return change
