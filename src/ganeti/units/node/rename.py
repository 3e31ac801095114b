"""Renaming of a node."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name
from ganeti.config.resolve import full_name, resolve_node
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.model.opcodes.node import OpNodeRename
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


class LUNodeRename(LogicalUnit[OpNodeRename, Change]):
    """Change a node's name in one step, without any lock: all references are to its UUID (S93)."""

    def check_arguments(self) -> None:
        if host_name(self.op.new_name, "new_name") != self.op.new_name:
            raise InputError("must be in lower case", "new_name")

    async def check_prereq(self, ctx: UnitContext) -> Change:
        snapshot = ctx.snapshot
        new_name = full_name(snapshot, self.op.new_name)
        self.op = op = replace(self.op, new_name=new_name)
        node = resolve_node(snapshot, op.node_uuid or op.node_name)
        if new_name == node.name:
            raise PrereqError(f"node {node.name} has this name already", ErrorCode.WRONG_INPUT)
        if new_name == snapshot.cluster.name:
            raise PrereqError(f"{new_name} is the name of the cluster", ErrorCode.EXISTS)
        ctx.config.reservations.take_name(ctx.job_id, new_name)

        def rename(draft: Draft) -> None:
            current = draft.nodes.get(node.uuid)
            if current is None:
                raise PrereqError(
                    f"node {node.name} was removed meanwhile", ErrorCode.UNKNOWN_ENTITY
                )
            draft.put(replace(current, name=new_name))

        ctx.check_change(rename)
        return rename

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        ctx.info(
            f"the host itself must have the name {self.op.new_name} as well: set its host name, and"
            " restart its daemons"
        )
        return Outcome(self.op.new_name, change=plan)
