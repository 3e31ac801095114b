"""Giving nodes the files that all of them must have: one way for redist-conf, node add and node modify (S69)."""

from collections.abc import Iterable

from ganeti.base.errors import RpcError
from ganeti.config.named_files import named_files
from ganeti.model.objects import Node
from ganeti.rpc.procedures.files import SHARED_FILES, WRITE_FILE, SharedFiles, SharedFilesArgs
from ganeti.units.context import UnitContext


async def shared_files(ctx: UnitContext) -> SharedFiles:
    """What the master's node has to share (S66, S67, S68); RpcError if it does not say."""
    cluster = ctx.snapshot.cluster
    master = ctx.snapshot.nodes[cluster.master_node]
    args = SharedFilesArgs(
        hypervisors=list(cluster.enabled_hypervisors), named=named_files(ctx.snapshot)
    )
    return await ctx.call(master, SHARED_FILES, args)


async def distribute_files(ctx: UnitContext, nodes: Iterable[Node]) -> bool:
    """Give nodes all that they must have; what does not work is said, and False returned."""
    receivers = [one for one in nodes if one.uuid != ctx.snapshot.cluster.master_node]
    if not receivers:
        return True
    try:
        shared = await shared_files(ctx)
    except RpcError as err:
        ctx.warn(f"the files that all nodes must have are not distributed: {err}")
        return False
    for problem in shared.problems:
        ctx.warn(problem)
    is_whole = not shared.problems
    for node in receivers:
        for file in shared.files:
            if file.candidates_only and not node.master_candidate:
                continue
            try:
                await ctx.call(node, WRITE_FILE, file)
            except RpcError as err:
                ctx.warn(f"{file.path} is not brought up to date on {node.name}: {err.reason}")
                is_whole = False
    return is_whole
