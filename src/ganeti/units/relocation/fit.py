"""Memory of a running guest on the node that it moves to: it may give some back, so that it fits."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.units.context import UnitContext
from ganeti.units.node_choice import check_memory
from ganeti.units.relocation.plan import Shrinking


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
