"""Comparison of exports with their digests."""

from typing import Any

from ganeti.base.errors import ExecError, RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.objects import Node
from ganeti.model.opcodes.backup import OpBackupVerify
from ganeti.rpc.procedures.exports import EXPORT_VERIFY, ExportArgs
from ganeti.units.backup.query import OnExports
from ganeti.units.context import UnitContext
from ganeti.units.telling import showing


class LUBackupVerify(OnExports[OpBackupVerify]):
    """Read the exports of one name on all nodes that answer; a bad one does not hide the state of the others."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        """Not that of the instance, which works on meanwhile, or may not exist."""
        _instance, nodes = super().declare_locks(snapshot)
        return [nodes]

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        good: list[dict[str, Any]] = []
        bad: list[str] = []
        for node in plan:
            ctx.step(f"reading the export of {self.name} on {node.name}")
            try:
                async with showing(ctx, node, f"the export on {node.name}"):
                    found = await ctx.call(node, EXPORT_VERIFY, ExportArgs(export=self.name))
            except RpcError as err:
                bad.append(str(err))
                continue
            for one in found:
                if one.problem:
                    bad.append(f"{node.name}: disk {one.disk} ({one.file}): {one.problem}")
                else:
                    row = {"node": node.name, "disk": one.disk, "file": one.file, "problem": ""}
                    good.append(row)
                    ctx.info(f"{node.name}: disk {one.disk} is good")
        if bad:
            raise ExecError(
                f"{len(bad)} problems of the export of {self.name}: {'; '.join(bad)}; export the instance again"
                " (gnt-backup export)"
            )
        return Outcome(good)
