"""New keys and certificates for a running cluster (F39)."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.opcodes.cluster import OpClusterRenewCrypto
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.job_source import check_is_local
from ganeti.units.services import Renewal


class LUClusterRenewCrypto(LogicalUnit[OpClusterRenewCrypto, Renewal]):
    """Record the request in the configuration, and wait for the reachable nodes; others follow automatically."""

    def check_arguments(self) -> None:
        op = self.op
        if op.renew_ssh_keys:
            raise InputError("this cluster has no ssh keys", "renew_ssh_keys")
        if not (op.node_certificates or op.cluster_certificate or op.confd_key):
            raise InputError("nothing to renew: pass at least one option", "options")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.CLUSTER, CLUSTER_LOCK)]

    async def check_prereq(self, ctx: UnitContext) -> Renewal:
        check_is_local(ctx, "renew_crypto")
        if ctx.services.renewal is None:
            raise PrereqError("this master cannot renew certificates", ErrorCode.ENVIRONMENT)
        return ctx.services.renewal

    async def execute(self, ctx: UnitContext, plan: Renewal) -> Outcome:
        await ctx.run.started()
        late: dict[str, str] = {}
        if self.op.confd_key:
            ctx.step("giving all candidates a new key of confd")
            late |= await plan.renew_confd_key()
        if self.op.node_certificates or self.op.cluster_certificate:
            ctx.step("giving all nodes new certificates")
            late |= await plan.renew(authority=self.op.cluster_certificate)
        for name, why in sorted(late.items()):
            ctx.warn(f"{name} gets it when it answers again: {why}")
        offline = [node.name for node in ctx.snapshot.nodes_by_name() if node.offline]
        if offline and self.op.cluster_certificate:
            ctx.warn(
                f"offline nodes keep their old certificates and must be added again (gnt-node add --readd):"
                f" {', '.join(offline)}"
            )
        return Outcome(sorted(late))
