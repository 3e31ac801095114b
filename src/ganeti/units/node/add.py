"""Addition of a joined host to the cluster."""

import re

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.base.identifiers import host_name, is_uuid
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.hypervisor_param import PORT_MAX
from ganeti.model.objects import GroupUuid, Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.node import OpNodeAdd
from ganeti.model.param_checks import changed, check_single_node_params
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import VERSION
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import node_variables
from ganeti.units.hooks.point import HookPoint
from ganeti.units.instance.requests import check_address
from ganeti.units.job_source import check_may_set_of_nodes
from ganeti.units.node.catch_up import check_can_return, tell_of_return
from ganeti.units.node.promotion import make_fit

_FINGERPRINT = re.compile(r"[0-9a-f]{64}", re.ASCII)


class LUNodeAdd(LogicalUnit[OpNodeAdd, Node]):
    """Add a host that `gnt-node add` has joined: it runs a node daemon with our certificate."""

    def check_arguments(self) -> None:
        op = self.op
        host_name(op.node_name, "node_name")
        if op.node_uuid is not None and not is_uuid(op.node_uuid):
            raise InputError(f"{op.node_uuid!r:.60} is not a UUID", "node_uuid")
        if not op.primary_ip or not op.certificate:
            raise InputError("a node is added after it was joined: use gnt-node add", "certificate")
        check_address(op.primary_ip, "primary_ip")
        if op.secondary_ip:
            check_address(op.secondary_ip, "secondary_ip")
        if not _FINGERPRINT.fullmatch(op.certificate):
            raise InputError("must be a SHA-256 fingerprint, 64 lower-case digits", "certificate")
        if not 1 <= op.port <= PORT_MAX:
            raise InputError(f"must be from 1 to {PORT_MAX}", "port")
        for field in ("hv_state", "disk_state"):
            if getattr(op, field):
                raise InputError("this implementation does not support it", field)
        if op.node_setup:
            raise InputError("a node is set up by joining it: use gnt-node add", "node_setup")
        check_single_node_params(op.ndparams)

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
        check_may_set_of_nodes(ctx, op.ndparams)
        name = host_name(op.node_name, "node_name")
        known = snapshot.node_by_name(name)
        if known and not op.readd:
            raise PrereqError(
                f"node {name} is already in the cluster; --readd adds it again",
                ErrorCode.EXISTS,
            )
        if op.readd and not known:
            raise PrereqError(
                f"node {name} is not in the cluster, so it cannot be added again",
                ErrorCode.UNKNOWN_ENTITY,
            )
        ctx.config.reservations.take_name(ctx.job_id, name)
        node = self._again(ctx.snapshot, known) if known else self._new(ctx, name)
        ctx.check_change(lambda draft: _put(draft, node))
        await self._check_daemon(ctx, node)
        if known:
            await check_can_return(ctx, node)
        return node

    def _new(self, ctx: UnitContext, name: str) -> Node:
        op = self.op
        return Node(
            uuid=NodeUuid(op.node_uuid or ctx.ids.uuid()),
            name=name,
            primary_ip=op.primary_ip or "",
            secondary_ip=op.secondary_ip or op.primary_ip or "",
            port=op.port,
            group=GroupUuid(self._group(ctx.snapshot).uuid),
            certificate=op.certificate,
            certificate_generation=ctx.snapshot.cluster.certificate_generation,
            master_candidate=op.master_capable and not op.drained and _pool_has_room(ctx.snapshot),
            drained=op.drained,
            master_capable=op.master_capable,
            vm_capable=op.vm_capable,
            ndparams=changed({}, check_single_node_params(op.ndparams)),
        )

    def _again(self, snapshot: Snapshot, known: Node) -> Node:
        """Return a known node that was joined again: online, and drained only on request."""
        op = self.op
        may_be = known.master_capable and not op.drained
        is_candidate = may_be and (known.master_candidate or _pool_has_room(snapshot))
        return replace(
            known,
            certificate=op.certificate,
            next_certificate="",
            certificate_generation=snapshot.cluster.certificate_generation,
            port=op.port,
            primary_ip=op.primary_ip or known.primary_ip,
            secondary_ip=op.secondary_ip or known.secondary_ip,
            master_candidate=is_candidate,
            offline=False,
            awaits_return=False,
            drained=op.drained,
        )

    async def _check_daemon(self, ctx: UnitContext, node: Node) -> None:
        try:
            version = await ctx.call(node, VERSION, Nothing())
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
                f"the host at {node.primary_ip} has the name {version.node_name}, not {node.name}",
                ErrorCode.WRONG_INPUT,
            )

    def hooks(self, snapshot: Snapshot, plan: Node) -> HookPoint:
        others = tuple(node for node in snapshot.nodes_by_name() if node.uuid != plan.uuid)
        return HookPoint("node-add", node_variables(plan), pre=others, post=(*others, plan))

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        ctx.log(f"Adding node {plan.name} ({plan.uuid}) at {plan.primary_ip}")
        await make_fit(ctx, [plan] if plan.master_candidate else [], files_for=[plan])
        result, before = [plan.name, plan.uuid], ctx.snapshot.nodes.get(plan.uuid)
        if before is None or not before.offline:
            return Outcome(result, change=lambda draft: _put(draft, plan))
        await ctx.run.record_undo((), lambda draft: _put(draft, plan))
        await tell_of_return(ctx, plan)
        return Outcome(result)


def _pool_has_room(snapshot: Snapshot) -> bool:
    return len(snapshot.master_candidates()) < snapshot.cluster.candidate_pool_size


def _put(draft: Draft, node: Node) -> None:
    draft.put(node)
