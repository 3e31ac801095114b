"""Distribution of the files that all nodes must have, for redist-conf, node add and node modify (S69)."""

from collections.abc import Collection, Iterable
from hashlib import sha256

from msgspec.structs import replace

from ganeti.base.errors import RpcError
from ganeti.config.named_files import named_files
from ganeti.config.transaction import Draft
from ganeti.model.objects import Node
from ganeti.rpc.procedures.files import SHARED_FILES, WRITE_FILE, SharedFiles, SharedFilesArgs
from ganeti.units.context import UnitContext

MEND = "fail over to a candidate that has it, copy it from there, or renew it again (gnt-cluster renew-crypto)"


def is_outdated(ctx: UnitContext, path: str, content: bytes) -> bool:
    """Return whether a file was renewed after this content: the node was away, or not a candidate, at that time."""
    wanted = ctx.snapshot.cluster.renewed_files.get(path)
    return wanted is not None and wanted != sha256(content).hexdigest()


async def let_count(ctx: UnitContext, paths: Collection[str]) -> None:
    """Record the master's versions of these files as the valid ones; RpcError if it does not return them."""
    shared = await shared_files(ctx)
    found = {
        file.path: sha256(file.content).hexdigest() for file in shared.files if file.path in paths
    }

    def change(draft: Draft) -> None:
        renewed = {**draft.cluster.renewed_files, **found}
        draft.put(replace(draft.cluster, renewed_files=renewed))

    await ctx.run.record_undo((), change)


async def shared_files(ctx: UnitContext) -> SharedFiles:
    """Return the shared files of the master's node (S66, S67, S68); RpcError if it does not return them."""
    cluster = ctx.snapshot.cluster
    master = ctx.snapshot.nodes[cluster.master_node]
    args = SharedFilesArgs(
        hypervisors=list(cluster.enabled_hypervisors), named=named_files(ctx.snapshot)
    )
    return await ctx.call(master, SHARED_FILES, args)


async def distribute_files(ctx: UnitContext, nodes: Iterable[Node]) -> bool:
    """Send nodes all files that they must have; report failures and return False for them."""
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
    outdated = [file for file in shared.files if is_outdated(ctx, file.path, file.content)]
    for file in outdated:
        ctx.warn(
            f"{file.path} is not distributed: the master does not have the version that was renewed last; {MEND}"
        )
    files = [file for file in shared.files if file not in outdated]
    is_whole = not (shared.problems or outdated)
    for node in receivers:
        for file in files:
            if file.candidates_only and not node.master_candidate:
                continue
            try:
                await ctx.call(node, WRITE_FILE, file)
            except RpcError as err:
                ctx.warn(f"{file.path} is not brought up to date on {node.name}: {err.reason}")
                is_whole = False
    return is_whole
