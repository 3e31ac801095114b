"""The cluster's name and its address."""

import asyncio
import socket
from typing import NamedTuple

from msgspec.structs import replace

from ganeti.base.addresses import is_address
from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.base.identifiers import host_name
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.opcodes.cluster import OpClusterRename
from ganeti.rpc.procedures.mastership import MASTER_IP_DOWN, MASTER_IP_UP, master_ip_args
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.master_ip import master_of
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import cluster_variables
from ganeti.units.hooks.point import HookPoint, on_nodes


class NewName(NamedTuple):
    """The new name of the cluster, and its address."""

    name: str
    address: str


class LUClusterRename(LogicalUnit[OpClusterRename, NewName]):
    """Change name and address; the result is the name. Internal references are UUIDs (S90)."""

    def check_arguments(self) -> None:
        if host_name(self.op.name, "name") != self.op.name:
            raise InputError(f"{self.op.name!r} must be in lower case", "name")
        if self.op.ip is not None and not is_address(self.op.ip):
            raise InputError(f"{self.op.ip!r:.60} is not an IP address", "ip")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.CLUSTER, CLUSTER_LOCK)]

    async def check_prereq(self, ctx: UnitContext) -> NewName:
        snapshot = ctx.snapshot
        cluster = snapshot.cluster
        if snapshot.index.owner("host name", self.op.name) is not None:
            raise PrereqError(
                f"{self.op.name} is a node or an instance: the cluster needs a name of its own",
                ErrorCode.NOT_UNIQUE,
            )
        plan = NewName(self.op.name, self.op.ip or await _resolved(self.op.name))
        if plan == (cluster.name, cluster.master_ip):
            raise PrereqError(
                "the cluster has this name and this address already", ErrorCode.WRONG_INPUT
            )
        taken = [
            node.name
            for node in snapshot.nodes.values()
            if plan.address in (node.primary_ip, node.secondary_ip)
        ]
        if cluster.master_netdev and taken:
            raise PrereqError(
                f"{plan.address} is the address of node {taken[0]}", ErrorCode.NOT_UNIQUE
            )
        return plan

    def hooks(self, snapshot: Snapshot, plan: NewName) -> HookPoint:
        variables = {**cluster_variables(snapshot), "NEW_NAME": plan.name}
        nodes = [node.uuid for node in snapshot.nodes_by_name()]
        return on_nodes("cluster-rename", variables, snapshot, post=nodes)

    async def execute(self, ctx: UnitContext, plan: NewName) -> Outcome:
        old = ctx.snapshot.cluster

        def change(draft: Draft) -> None:
            draft.put(replace(draft.cluster, name=plan.name, master_ip=plan.address))

        if not old.master_netdev or plan.address == old.master_ip:
            return Outcome(plan.name, change=change)
        master = master_of(ctx.snapshot)
        await ctx.call(master, MASTER_IP_DOWN, master_ip_args(old))
        await ctx.run.record_undo((), change)
        try:
            new = replace(old, master_ip=plan.address)
            await ctx.call(master, MASTER_IP_UP, master_ip_args(new))
        except RpcError as err:
            ctx.warn(
                f"cannot configure the cluster's address: {err.reason};"
                " run gnt-cluster activate-master-ip after the fix"
            )
        return Outcome(plan.name)


async def _resolved(name: str) -> str:
    try:
        found = await asyncio.to_thread(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
    except OSError as err:
        raise PrereqError(
            f"{name} has no address ({err.strerror}): give one with --master-ip", ErrorCode.RESOLVER
        ) from err
    return str(found[0][4][0])
