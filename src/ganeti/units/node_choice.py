"""Checks of nodes that several units share."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.storage_units import with_overcommit
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Node
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfo, NodeInfoArgs
from ganeti.units.context import UnitContext
from ganeti.units.placements import minus_reserved


def check_online(node: Node) -> None:
    """Refuse an operation that needs a node which is marked offline."""
    if node.offline:
        raise PrereqError(f"node {node.name} is marked offline", ErrorCode.WRONG_STATE)


def check_can_host(node: Node) -> None:
    """Refuse to put a new guest on a node that must not run new guests."""
    check_online(node)
    if node.drained:
        raise PrereqError(
            f"node {node.name} is drained and accepts no new instances", ErrorCode.WRONG_STATE
        )
    if not node.vm_capable:
        raise PrereqError(
            f"node {node.name} is not vm_capable: it runs no instances", ErrorCode.WRONG_STATE
        )


async def free_resources(
    ctx: UnitContext, node: Node, what: str, units: Iterable[StorageUnit] = ()
) -> NodeInfo:
    """Return `node`'s report about itself, less the resources of placements decided before this job's.

    The query covers only `units`: each one costs the node a look at its disks.
    """
    earlier = ctx.services.placements.before(ctx.job_id)
    query = NodeInfoArgs(hypervisors=[], storage=list(dict.fromkeys(units)))
    try:
        info, pending = await ctx.ask_shared(node, NODE_INFO, query)
    except RpcError as err:
        raise PrereqError(f"{what}: cannot query {err}", ErrorCode.ENVIRONMENT) from err
    # If this is less than an allocation counted on, the next one must not choose the node for the same reason.
    ctx.services.node_data.doubt(node.uuid)
    storage = [with_overcommit(ctx.snapshot.cluster, space) for space in info.storage]
    # The guests of the others ran before the call began, so they are in the report.
    missing = [one for one in earlier if one.job_id in pending]
    return minus_reserved(replace(info, storage=storage), ctx.snapshot, node, missing)


def check_memory(info: NodeInfo, node: Node, memory_mib: int, what: str) -> None:
    """Refuse if `node` has less free memory than a guest needs."""
    if info.memory_free < memory_mib:
        raise PrereqError(
            f"{what}: node {node.name} has {info.memory_free} MiB of memory free but needs {memory_mib} MiB",
            ErrorCode.NO_RESOURCES,
        )


def check_space(info: NodeInfo, node: Node, needs: Mapping[StorageUnit, int]) -> None:
    """Refuse if the needs, in MiB by storage unit, exceed the space on `node`."""
    spaces = {space.unit: space for space in info.storage}
    for unit, size_mib in needs.items():
        if unit not in spaces:
            raise PrereqError(
                f"node {node.name} offers no storage {unit}: it is missing there or not allowed"
                " (for directories see file-storage-paths)",
                ErrorCode.ENVIRONMENT,
            )
        if spaces[unit].free < size_mib:
            raise PrereqError(
                f"node {node.name} has {spaces[unit].free} MiB free in {unit.key} but needs {size_mib} MiB",
                ErrorCode.NO_RESOURCES,
            )
