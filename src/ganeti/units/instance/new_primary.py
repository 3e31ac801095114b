"""Record another primary node for an instance whose disks were moved by hand (--new-primary)."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.planner import placed_disks
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, DiskArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import is_running, primary_node
from ganeti.units.instance.disks import JobNames, disks_on, is_mirrored, planner_of
from ganeti.units.instance.snapshot_checks import check_no_snapshots
from ganeti.units.node_choice import check_can_host, check_online


def wanted_primary(op: OpInstanceSetParams, snapshot: Snapshot) -> Node | None:
    """The new primary node."""
    given = op.pnode_uuid or op.pnode
    return resolve_node(snapshot, given) if given else None


def check_alone(op: OpInstanceSetParams) -> None:
    """Raise InputError if the request changes the node in another way as well."""
    for field in ("disks", "nics", "disk_template", "runtime_mem", "hvparams"):
        if getattr(op, field):
            raise InputError("cannot be combined with another primary node", field)


async def with_new_primary(
    ctx: UnitContext, before: Instance, node: Node, *, is_forced: bool
) -> Instance:
    """Return the instance on that node; PrereqError if it runs elsewhere, or its disks are not there.

    With force no node is queried, for an old node that is lost and not marked offline.
    """
    if node.uuid == before.primary_node:
        raise InputError(f"is the primary node of {before.name} already", "pnode")
    if is_mirrored(before) or node.uuid in before.all_nodes:
        raise PrereqError(
            f"the disks of {before.name} are mirrored: gnt-instance failover or migrate changes the"
            " primary node, gnt-instance replace-disks the secondary",
            ErrorCode.WRONG_STATE,
        )
    check_no_snapshots(before, "given another node by hand", "their data is not looked for there")
    check_can_host(node)
    names = JobNames(ctx)
    after = placed_disks(planner_of(before), before, [NodeUuid(node.uuid)], names)
    if not is_forced:
        await _check_it_is_down(ctx, before)
        await _check_disks_are_there(ctx, after, node)
    return after


async def _check_it_is_down(ctx: UnitContext, before: Instance) -> None:
    old = primary_node(ctx, before)
    if old.offline:
        return
    try:
        is_up = await is_running(ctx, old, before)
    except RpcError as err:
        raise PrereqError(
            f"{old.name} does not answer ({err}), so the state of {before.name} is unknown; mark that node offline, or"
            " pass --force",
            ErrorCode.WRONG_STATE,
        ) from err
    if is_up:
        raise PrereqError(
            f"{before.name} still runs on {old.name}; first run: gnt-instance shutdown {before.name}",
            ErrorCode.WRONG_STATE,
        )


async def _check_disks_are_there(ctx: UnitContext, after: Instance, node: Node) -> None:
    check_online(node)
    for disk in disks_on(ctx, after, NodeUuid(node.uuid)):
        info = await ctx.call(node, BLOCKDEV_INFO, DiskArgs(instance_name=after.name, disk=disk))
        if not info.exists:
            raise PrereqError(
                f"disk {disk.index} of {after.name} is not on {node.name}; move its data there first, or run"
                f" gnt-instance move {after.name}",
                ErrorCode.WRONG_STATE,
            )
