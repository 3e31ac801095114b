"""Shell commands on nodes, and copies of the master's files to nodes."""

import asyncio

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.base.identifiers import is_absolute_path
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node
from ganeti.model.opcodes.commands import OpClusterCommand, OpClusterCopyFile
from ganeti.rpc.procedures.commands import SHELL_COMMAND, ShellArgs
from ganeti.rpc.procedures.files import SHARED_FILES, WRITE_FILE, NodeFile, SharedFilesArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.point import master_of
from ganeti.units.job_source import check_is_local
from ganeti.units.name_lists import nodes_named
from ganeti.units.restricted.command import output_of

AT_ONCE = 30
LINE_LIMIT = 64 * 1024


class LUClusterCommand(LogicalUnit[OpClusterCommand, list[Node]]):
    """Run a line of shell on nodes whose administrator has allowed it there. Takes no locks."""

    def check_arguments(self) -> None:
        if not self.op.command.strip() or "\0" in self.op.command:
            raise InputError("must not be empty", "command")
        if len(self.op.command) > LINE_LIMIT:
            raise InputError(f"has more than {LINE_LIMIT} characters", "command")

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        check_is_local(ctx, "commands for nodes")
        nodes = nodes_named(ctx.snapshot, self.op.node_names)
        return [node for node in nodes if self.op.node_names or not node.offline]

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        slots, args = asyncio.Semaphore(AT_ONCE), ShellArgs(line=self.op.command)

        async def one(node: Node) -> list[object]:
            async with slots:
                try:
                    said = await ctx.call(node, SHELL_COMMAND, args)
                except RpcError as err:
                    return [node.name, -1, err.reason]
                return [node.name, said.status, output_of(said)]

        return Outcome(await asyncio.gather(*(one(node) for node in plan)))


class LUClusterCopyFile(LogicalUnit[OpClusterCopyFile, list[Node]]):
    """Copy a file of the master's node to the same path on others, if their `allowed-uploads` permit it.

    No job holds the content: the master reads the file at the time of the copy.
    """

    def check_arguments(self) -> None:
        if not is_absolute_path(self.op.path):
            raise InputError("must be an absolute path", "path")

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        check_is_local(ctx, "the files of nodes")
        master = ctx.snapshot.cluster.master_node
        nodes = nodes_named(ctx.snapshot, self.op.node_names)
        await self._content(ctx)
        return [
            node
            for node in nodes
            if node.uuid != master and (self.op.node_names or not node.offline)
        ]

    async def _content(self, ctx: UnitContext) -> NodeFile:
        args = SharedFilesArgs(hypervisors=[], named=[self.op.path])
        shared = await ctx.call(master_of(ctx.snapshot), SHARED_FILES, args)
        found = next((file for file in shared.files if file.path == self.op.path), None)
        if found is None:
            why = next((one for one in shared.problems if self.op.path in one), "it does not exist")
            raise PrereqError(
                f"{self.op.path} of the master's node cannot be copied: {why}",
                ErrorCode.WRONG_INPUT,
            )
        return found

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        file, slots = await self._content(ctx), asyncio.Semaphore(AT_ONCE)

        async def one(node: Node) -> list[str]:
            async with slots:
                try:
                    await ctx.call(node, WRITE_FILE, file)
                except RpcError as err:
                    return [node.name, err.reason]
                return [node.name, ""]

        return Outcome(await asyncio.gather(*(one(node) for node in plan)))
