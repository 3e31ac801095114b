"""Refusal to move a guest while a finished job still has to clean up after it."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.units.context import UnitContext
from ganeti.units.undo.disk_moves import SettleDiskMove
from ganeti.units.undo.mirrors import RemoveReplaced
from ganeti.units.undo.run import read_step


def check_nothing_pending(
    ctx: UnitContext, instance: Instance, *, to: str, node: Node | None = None
) -> None:
    """Refuse while a step about the guest or its disks is pending (F23); `to` names the operation in the message.

    Steps on nodes that are marked offline cannot run and do not block. With `node`, a copy that must still be removed
    from that node blocks as well.
    """
    for left in ctx.services.pending_undo():
        if _is_in_the_way(ctx, left, instance, node):
            when = f"in {left.next_try_s:.0f} s" if left.next_try_s else "now"
            raise PrereqError(
                f"cannot {to} {instance.name}: job {left.job_id} ({left.summary}) has not cleaned up yet:"
                f" {left.what} ({left.why or 'not tried yet'}). The master tries again {when}; if a node is dead,"
                " mark it offline. gnt-job pending-undo lists such steps",
                ErrorCode.WRONG_STATE,
            )


def pending_on(ctx: UnitContext, node: Node) -> list[str]:
    """Return the pending steps of finished jobs on a node, a sentence each."""
    return [
        f"job {left.job_id} ({left.summary}) still has to {left.what}: {left.why or 'not tried yet'}"
        for left in ctx.services.pending_undo()
        if node.uuid in read_step(left.step).concerns(ctx.snapshot).nodes
    ]


def _is_in_the_way(
    ctx: UnitContext, left: PendingStep, instance: Instance, node: Node | None
) -> bool:
    step, nodes = read_step(left.step), ctx.snapshot.nodes
    concerned = step.concerns(ctx.snapshot)
    if instance.name not in concerned.instances:
        return False
    if isinstance(step, RemoveReplaced):
        return node is not None and step.node == node.uuid
    # Only the node of the guest knows which disks are right, also of those on other nodes.
    needed = {step.node} if isinstance(step, SettleDiskMove) else concerned.nodes
    known = [nodes[one] for one in map(NodeUuid, needed) if one in nodes]
    can_run = not needed or any(not one.offline for one in known)
    return step.blocks_moves and can_run
