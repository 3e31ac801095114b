"""The cluster's own address, which moves with the master."""

from typing import TypeVar

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node
from ganeti.model.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp
from ganeti.rpc.procedures.mastership import (
    MASTER_IP_DOWN,
    MASTER_IP_UP,
    MasterIpArgs,
    master_ip_args,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

OpT = TypeVar("OpT", OpClusterActivateMasterIp, OpClusterDeactivateMasterIp)


def master_of(snapshot: Snapshot) -> Node:
    """Return the master's node."""
    return snapshot.nodes[snapshot.cluster.master_node]


class MasterIpUnit(LogicalUnit[OpT, MasterIpArgs]):
    """The common part of both directions."""

    async def check_prereq(self, ctx: UnitContext) -> MasterIpArgs:
        cluster = ctx.snapshot.cluster
        if not cluster.master_netdev or not cluster.master_ip:
            raise PrereqError(
                "the cluster has no interface for its address: set one with"
                " gnt-cluster modify --master-netdev",
                ErrorCode.WRONG_STATE,
            )
        return master_ip_args(cluster)


class LUClusterActivateMasterIp(MasterIpUnit[OpClusterActivateMasterIp]):
    """Configure the cluster's address on the master, unless another host has it (F5)."""

    async def execute(self, ctx: UnitContext, plan: MasterIpArgs) -> Outcome:
        await ctx.call(master_of(ctx.snapshot), MASTER_IP_UP, plan)
        return Outcome()


class LUClusterDeactivateMasterIp(MasterIpUnit[OpClusterDeactivateMasterIp]):
    """Remove the cluster's address from the master."""

    async def execute(self, ctx: UnitContext, plan: MasterIpArgs) -> Outcome:
        await ctx.call(master_of(ctx.snapshot), MASTER_IP_DOWN, plan)
        return Outcome()
