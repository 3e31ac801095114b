"""Making nodes fit to be master candidates, before the configuration says that they are."""

from collections.abc import Sequence

from ganeti.base.errors import ExecError, GanetiError
from ganeti.model.objects import Node
from ganeti.units.context import UnitContext
from ganeti.units.shared_files import distribute_files


async def make_fit(
    ctx: UnitContext, candidates: Sequence[Node], *, files_for: Sequence[Node] = ()
) -> None:
    """Give future candidates, and the nodes `files_for`, the shared files (S69); candidates the state as well.

    The nodes are as they will be. ExecError if one cannot be made a candidate.
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
            raise ExecError(
                f"node {node.name} cannot be made a master candidate: {err.message}"
            ) from err
