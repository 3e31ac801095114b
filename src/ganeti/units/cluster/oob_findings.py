"""Findings about out-of-band programs on master candidates."""

from collections.abc import Iterator, Mapping

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import NodeUuid
from ganeti.rpc.procedures.commands import OOB_PROBLEMS, ProgramsArgs
from ganeti.units.cluster.findings import Finding
from ganeti.units.context import UnitContext
from ganeti.units.oob.command import oob_program


async def oob_problems(ctx: UnitContext) -> Mapping[NodeUuid, dict[str, str] | RpcError]:
    """Return the state of the programs on each candidate; without programs no node is called."""
    snapshot = ctx.snapshot
    programs = {oob_program(snapshot, node) for node in snapshot.nodes.values()} - {""}
    if not programs:
        return {}
    online = [node for node in snapshot.master_candidates() if not node.offline]
    return await ctx.call_all(online, OOB_PROBLEMS, ProgramsArgs(programs=sorted(programs)))


def oob_findings(
    snapshot: Snapshot, said: Mapping[NodeUuid, dict[str, str] | RpcError]
) -> Iterator[Finding]:
    """Yield programs that a candidate cannot run; silent candidates are reported elsewhere."""
    for uuid, problems in said.items():
        if not isinstance(problems, RpcError):
            for program, why in problems.items():
                text = f"out-of-band program {program} cannot be run: {why}"
                yield Finding("ENODEOOBPATH", "node", snapshot.nodes[uuid].name, text)
