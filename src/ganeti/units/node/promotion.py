"""Preparation of nodes as master candidates, before the configuration names them."""

import contextlib
from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.base.errors import ExecError, GanetiError
from ganeti.model.objects import Node, NodeUuid
from ganeti.units.context import UnitContext
from ganeti.units.shared_files import distribute_files


async def make_fit(
    ctx: UnitContext, candidates: Sequence[Node], *, files_for: Sequence[Node] = ()
) -> None:
    """Send future candidates, and the nodes `files_for`, the shared files (S69); candidates also get the state.

    The nodes are in their new form. ExecError if one cannot become a candidate.
    """
    uuids = {node.uuid for node in candidates}
    receivers = [*candidates, *(node for node in files_for if node.uuid not in uuids)]
    await distribute_files(ctx, receivers)
    for node in candidates:
        ctx.step(f"making {node.name} a master candidate")
        await ctx.run.started()
        try:
            await ctx.services.candidates.promote(node)
        except GanetiError as err:
            await _take_back(ctx, node)
            raise ExecError(
                f"node {node.name} cannot be made a master candidate: {err.message}"
            ) from err


async def _take_back(ctx: UnitContext, node: Node) -> None:
    """Remove a candidate's data from a node that did not become one; if it is silent, its watcher does."""
    known = ctx.snapshot.nodes.get(NodeUuid(node.uuid))
    if known is None or not known.master_candidate:
        with contextlib.suppress(GanetiError):
            await ctx.services.candidates.enforce(replace(node, master_candidate=False))
