"""The first and the last job of a cluster."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.opcodes.cluster import OpClusterDestroy, OpClusterPostInit, OpClusterQuery
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import cluster_variables
from ganeti.units.hooks.point import HookPoint, master_of


class LUClusterPostInit(LogicalUnit[OpClusterPostInit, None]):
    """The first job: shows that the new cluster runs jobs."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        return None

    def hooks(self, snapshot: Snapshot, plan: None) -> HookPoint:
        """Run post hooks only: before the cluster existed, no node had hooks."""
        variables = cluster_variables(snapshot)
        return HookPoint("cluster-init", variables, post=(master_of(snapshot),))

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        return Outcome(ctx.snapshot.cluster.uuid)


class LUClusterDestroy(LogicalUnit[OpClusterDestroy, None]):
    """Confirm that the cluster may be destroyed; the command then removes its data from the master."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.INSTANCE, ALL), lock(Level.NODE, ALL)]

    async def check_prereq(self, ctx: UnitContext) -> None:
        snapshot = ctx.snapshot
        others = sorted(
            node.name
            for node in snapshot.nodes.values()
            if node.uuid != snapshot.cluster.master_node
        )
        if others:
            raise PrereqError(
                f"the cluster still has other nodes: {', '.join(others[:5])}{', …' if others[5:] else ''}:"
                " remove them first (gnt-node remove)",
                ErrorCode.WRONG_STATE,
            )
        if snapshot.instances:
            raise PrereqError(
                f"the cluster still has {len(snapshot.instances)} instances: remove them first (gnt-instance remove)",
                ErrorCode.WRONG_STATE,
            )

    def hooks(self, snapshot: Snapshot, plan: None) -> HookPoint:
        """Run the post hooks before the command removes the data."""
        variables = cluster_variables(snapshot)
        return HookPoint("cluster-destroy", variables, post=(master_of(snapshot),))

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        return Outcome(ctx.snapshot.nodes[ctx.snapshot.cluster.master_node].name)


class LUClusterQuery(LogicalUnit[OpClusterQuery, None]):
    """Return the stored form of the cluster object."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        return None

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        return Outcome(wire.plain(ctx.snapshot.cluster))
