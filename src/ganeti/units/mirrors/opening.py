"""Opening of mirrored disks on the node of their guest, also while the link to the other copy is cut."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError
from ganeti.config.fill import disk_spec
from ganeti.model.mirror_states import UNUSABLE, WELL, MirrorState
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_OPEN_ALONE,
    BLOCKDEV_OUTDATE,
    DiskArgs,
    OpenAloneArgs,
    OpenDiskArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import close_disks, copies_open, is_mirrored
from ganeti.units.instance.grants import grant_alone, grant_closed
from ganeti.units.mirrors.judge import (
    OFFLINE,
    Verdict,
    problem,
    why_no_source,
    why_not_alone,
    why_not_used,
)
from ganeti.units.mirrors.look import settled_verdicts, verdicts_of


async def prepare_primary(ctx: UnitContext, instance: Instance, *, force: bool = False) -> Instance:
    """Prepare each disk for opening as primary on the instance's node; the secondary nodes are open.

    If the copies do not connect and the copy on this node has all data, it is opened alone: the other copy is first
    marked as out of date, so that no node uses it before it is synchronised (D5). With `force`, a copy that lacks
    writes is opened as well. ExecError names the state of a disk that cannot be opened.

    Return the instance with its grants: writes of a protected one wait no longer for a copy that is out of reach.
    """
    instance = await grant_closed(ctx.config, instance)
    node = ctx.snapshot.nodes[instance.primary_node]
    for verdict in await verdicts_of(ctx, instance):
        if not verdict.primary.is_writing:
            disk = disk_spec(ctx.snapshot, instance, verdict.disk, NodeUuid(node.uuid))
            args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=DiskRole.SECONDARY)
            await ctx.call(node, BLOCKDEV_ASSEMBLE, args)
    verdicts = await settled_verdicts(ctx, instance)
    alone = [one for one in verdicts if _must_be_alone(one, force=force)]
    for verdict in alone:
        why = _why_not(verdict, force=force)
        if why:
            found = problem(verdict, instance.name, is_up=True)
            raise ExecError(
                f"disk {verdict.disk} of {instance.name} cannot be opened: {why}; {found}"
            )
    if alone or any(map(_lacks_peer, verdicts)):
        instance = await grant_alone(ctx.config, instance, force=force)
    for verdict in alone:
        await _open_alone(ctx, instance, node, verdict, force=force)
    return instance


def _lacks_peer(verdict: Verdict) -> bool:
    """Return whether the copy on the primary node is complete, and writes would not reach the other one."""
    part = verdict.primary
    if part.copy is None or not part.copy.up_to_date:
        return False
    others = [other.copy for other in verdict.others(part.node)]
    return not part.is_connected or any(copy is None or not copy.attached for copy in others)


@contextlib.asynccontextmanager
async def disks_ready(ctx: UnitContext, instance: Instance) -> AsyncIterator[None]:
    """Let the node of an existing guest that is down open its disks for the time of a block.

    The secondary copies are open meanwhile. As at the start of a guest, a complete copy is opened alone while the
    link to the other one is cut. Disks that are in use stay open.
    """
    async with copies_open(ctx, instance):
        is_ours = is_mirrored(instance) and not any(
            verdict.primary.is_writing for verdict in await verdicts_of(ctx, instance)
        )
        try:
            if is_ours:
                await prepare_primary(ctx, instance)
            yield
        finally:
            if is_ours:
                await _close_primary(ctx, instance)


async def _close_primary(ctx: UnitContext, instance: Instance) -> None:
    try:
        await close_disks(ctx, instance, ctx.snapshot.nodes[instance.primary_node])
    except RpcError as err:
        ctx.warn(f"{err}; the disks of {instance.name} stay open there")


def _must_be_alone(verdict: Verdict, *, force: bool) -> bool:
    """Return whether the other copy cannot be asked for a handshake."""
    part = verdict.primary
    if part.is_connected or part.is_writing or not part.is_open:
        return False
    # The driver itself opens a complete copy if the other node is marked offline.
    is_dead = any(other.why == OFFLINE for other in verdict.others(part.node))
    return force or not is_dead


def _why_not(verdict: Verdict, *, force: bool) -> str:
    if not force:
        return why_not_alone(verdict)
    return (
        f"the copy on {verdict.primary.node} is {verdict.states[0]}"
        if verdict.states[0] in UNUSABLE
        else ""
    )


async def _open_alone(
    ctx: UnitContext, instance: Instance, node: Node, verdict: Verdict, *, force: bool
) -> None:
    for other in verdict.others(node.name):
        if other.is_open:
            await _outdate(ctx, instance, verdict.disk, other.node, must=not force)
    copy = verdict.primary.copy
    generation = copy.generations[0] if copy is not None and copy.generations else ""
    disk = disk_spec(ctx.snapshot, instance, verdict.disk, NodeUuid(node.uuid))
    args = OpenAloneArgs(instance_name=instance.name, disk=disk, generation=generation, force=force)
    await ctx.call(node, BLOCKDEV_OPEN_ALONE, args)
    ctx.warn(
        f"disk {verdict.disk} of {instance.name} is open on {node.name} without its other copy"
        f" ({problem(verdict, instance.name, is_up=True)})"
    )


async def _outdate(ctx: UnitContext, instance: Instance, at: int, name: str, *, must: bool) -> None:
    (other,) = (one for one in ctx.snapshot.nodes.values() if one.name == name)
    disk = disk_spec(ctx.snapshot, instance, at, NodeUuid(other.uuid))
    try:
        await ctx.call(other, BLOCKDEV_OUTDATE, DiskArgs(instance_name=instance.name, disk=disk))
    except RpcError as err:
        if must:
            raise
        ctx.warn(
            f"disk {at} of {instance.name}: the copy on {name} is not marked as out of date: {err}"
        )


async def check_copy(
    ctx: UnitContext,
    instance: Instance,
    node: Node,
    *,
    to: str,
    force: bool = False,
    is_last: bool = False,
) -> None:
    """Refuse to use the copy on a node if it lacks writes, or will (G13); `to` names the operation in the message.

    With `force` only a copy without usable data is refused; a warning names the loss. With `is_last` the operation
    drops the other copy, so the primary's one needs no connection to it. This queries both nodes.
    """
    reason = why_no_source if is_last else why_not_used
    verdicts = await verdicts_of(ctx, instance)
    for verdict in verdicts:
        why = reason(verdict, node.name)
        if not why:
            continue
        part, state = verdict.of(node.name)
        if force and part.info is not None and state not in UNUSABLE:
            ctx.warn(f"disk {verdict.disk}: {why}; the guest loses these writes on {node.name}")
            continue
        found = problem(verdict, instance.name, is_up=instance.admin_state is AdminState.UP)
        text = f"cannot {to} {instance.name}: disk {verdict.disk}: {why}"
        is_forced = found is not None and "--ignore-consistency" in found.command
        if found is not None and found.command and not is_forced:
            text += f"; run: {found.command}"
        if to in ("fail over", "move") and state not in UNUSABLE:
            text += "; --ignore-consistency continues, and these writes are lost"
        raise PrereqError(text, ErrorCode.WRONG_STATE)


async def check_source(
    ctx: UnitContext, instance: Instance, node: Node, disks: Iterable[int]
) -> None:
    """Refuse to fill new copies of some disks from the copies on a node, if these do not have all data."""
    verdicts = await verdicts_of(ctx, instance)
    for at in disks:
        if why := why_no_source(verdicts[at], node.name):
            is_up = instance.admin_state is AdminState.UP
            found = problem(verdicts[at], instance.name, is_up=is_up)
            raise PrereqError(
                f"disk {at} of {instance.name} on {node.name} is incomplete, and it is the only other copy: {why}"
                + (f"; run: {found.command}" if found and found.command else ""),
                ErrorCode.WRONG_STATE,
            )


def warn_of(ctx: UnitContext, instance: Instance, verdicts: Sequence[Verdict]) -> None:
    """Report the faulty disks, with the repair commands."""
    for verdict in verdicts:
        if verdict.state in WELL and MirrorState.CLOSED not in verdict.states:
            continue
        if found := problem(verdict, instance.name, is_up=True):
            ctx.warn(str(found))
