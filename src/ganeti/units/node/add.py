"""Taking a joined host into the cluster."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.base.identifiers import host_name
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.hypervisor_params import PORT_MAX
from ganeti.model.objects import Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.node import OpNodeAdd
from ganeti.rpc.procedures import VERSION, NodeVersion, Nothing
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


class LUNodeAdd(LogicalUnit[OpNodeAdd, Node]):
    """Take a host into the cluster that `gnt-node add` has joined: it runs a node daemon with our certificate."""

    def check_arguments(self) -> None:
        op = self.op
        host_name(op.node_name, "node_name")
        if not op.primary_ip or not op.certificate:
            raise InputError("a node is added after it was joined: use gnt-node add", "certificate")
        if not 1 <= op.port <= PORT_MAX:
            raise InputError(f"must be from 1 to {PORT_MAX}", "port")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE_GROUP, self._group(snapshot).uuid)]

    def _group(self, snapshot: Snapshot) -> NodeGroup:
        if self.op.group:
            return resolve_group(snapshot, self.op.group)
        return min(
            snapshot.groups.values(), key=lambda group: (group.name != "default", group.ctime)
        )

    async def check_prereq(self, ctx: UnitContext) -> Node:
        op, snapshot = self.op, ctx.snapshot
        name = host_name(op.node_name, "node_name")
        known = snapshot.node_by_name(name)
        if known and not op.readd:
            raise PrereqError(
                f"node {name} is in the cluster already (--readd takes it in again)",
                ErrorCode.EXISTS,
            )
        if op.readd and not known:
            raise PrereqError(
                f"node {name} is not in the cluster, so it cannot be added again",
                ErrorCode.UNKNOWN_ENTITY,
            )
        node = Node(
            uuid=known.uuid if known else NodeUuid(ctx.ids.uuid()),
            name=name,
            primary_ip=op.primary_ip or "",
            secondary_ip=op.secondary_ip or op.primary_ip or "",
            port=op.port,
            group=known.group if known else self._group(snapshot).uuid,
            certificate=op.certificate,
            master_capable=op.master_capable,
            vm_capable=op.vm_capable,
            ndparams=op.ndparams,
        )
        if known:
            node = replace(
                known, certificate=op.certificate, port=op.port, primary_ip=node.primary_ip
            )
        self._check_addresses(snapshot, node)
        await self._check_daemon(ctx, node)
        return node

    def _check_addresses(self, snapshot: Snapshot, node: Node) -> None:
        for other in snapshot.nodes.values():
            if other.uuid == node.uuid:
                continue
            if {other.primary_ip, other.secondary_ip} & {node.primary_ip, node.secondary_ip}:
                raise PrereqError(
                    f"node {other.name} has the address {node.primary_ip} or {node.secondary_ip} already",
                    ErrorCode.NOT_UNIQUE,
                )

    async def _check_daemon(self, ctx: UnitContext, node: Node) -> None:
        try:
            version: NodeVersion = await ctx.call(node, VERSION, Nothing())
        except RpcError as err:
            raise PrereqError(
                f"the node daemon of {node.name} does not answer at {node.primary_ip}:{node.port}: {err.reason}",
                ErrorCode.ENVIRONMENT,
            ) from err
        if version.cluster_uuid != ctx.snapshot.cluster.uuid:
            raise PrereqError(
                f"{node.name} has joined another cluster ({version.cluster_uuid or 'none'})",
                ErrorCode.WRONG_STATE,
            )
        if version.node_name != node.name:
            raise PrereqError(
                f"the host at {node.primary_ip} calls itself {version.node_name}, not {node.name}",
                ErrorCode.WRONG_INPUT,
            )

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        ctx.log(f"Adding node {plan.name} ({plan.uuid}) at {plan.primary_ip}")

        def add(draft: Draft) -> None:
            draft.put(plan)

        return Outcome([plan.name, plan.uuid], change=add)
