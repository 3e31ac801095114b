"""Restricted commands: programs that nodes offer."""

import asyncio

from ganeti.base.errors import InputError, RpcError
from ganeti.base.run_parts import NAME
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Node
from ganeti.model.opcodes.commands import OpRestrictedCommand
from ganeti.rpc.procedures.commands import RESTRICTED_COMMAND, CommandOutput, RestrictedArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.name_lists import nodes_named


class LURestrictedCommand(LogicalUnit[OpRestrictedCommand, list[Node]]):
    """Run a program from the nodes' restricted commands, without arguments (A31)."""

    def check_arguments(self) -> None:
        if not NAME.fullmatch(self.op.command):
            raise InputError("must be the name of a restricted command", "command")
        if not (self.op.nodes or self.op.node_uuids):
            raise InputError("name at least one node", "nodes")

    def _nodes(self, snapshot: Snapshot) -> list[Node]:
        return nodes_named(snapshot, self.op.node_uuids or self.op.nodes)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        uuids = [node.uuid for node in self._nodes(snapshot)]
        return [lock(Level.NODE, uuids if self.op.use_locking else None)]

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return self._nodes(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        args = RestrictedArgs(command=self.op.command)

        async def one(node: Node) -> list[object]:
            try:
                said = await ctx.call(node, RESTRICTED_COMMAND, args)
            except RpcError as err:
                return [False, err.reason]
            return [said.status == 0, output_of(said)]

        return Outcome(await asyncio.gather(*(one(node) for node in plan)))


def output_of(said: CommandOutput) -> str:
    """Return a program's output, errors last; or its exit status if it has none."""
    text = "\n".join(one for one in (said.stdout, said.stderr) if one)
    return text or (f"exit status {said.status}" if said.status else "")
