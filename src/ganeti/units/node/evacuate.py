"""Evacuation of a node: a job for each of its instances."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.model.opcodes.instance_changes import OpInstanceReplaceDisks
from ganeti.model.opcodes.moving import OpInstanceMove, OpNodeEvacuate, OpNodeMigrate
from ganeti.protocols import iallocator_requests
from ganeti.protocols.iallocator_requests import EVACUATION_MODES, PRIMARY_ONLY, SECONDARY_ONLY
from ganeti.units.allocation import allocators_for
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import node_variables, text
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.instance.pending import pending_on
from ganeti.units.relocation.evacuation import (
    EvacuationUnit,
    Jobs,
    jobs_of,
    proposed_moves,
    say_moves,
)
from ganeti.units.relocation.plan import check_mode
from ganeti.units.relocation.targets import TargetChoice


class LUNodeMigrate(EvacuationUnit[OpNodeMigrate]):
    """Migrate all primary instances of a node, each by a job of its own."""

    @property
    def _choice(self) -> TargetChoice:
        op = self.op
        return TargetChoice(op.target_node_uuid or op.target_node, op.iallocator)

    def check_arguments(self) -> None:
        self._choice.check()
        check_mode(self.op.mode, live=self.op.live)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [_shared(_node(snapshot, self.op.node_uuid or self.op.node_name))]

    async def check_prereq(self, ctx: UnitContext) -> Jobs:
        op = self.op
        node = _node(ctx.snapshot, op.node_uuid or op.node_name)
        target = _other_node(ctx.snapshot, self._choice.node, node, "target_node")
        return [
            [
                OpInstanceMigrate(
                    instance_name=instance.name,
                    mode=op.mode,
                    live=op.live,
                    target_node=target.name if target else None,
                    iallocator=op.iallocator,
                    allow_runtime_changes=op.allow_runtime_changes,
                    ignore_ipolicy=op.ignore_ipolicy,
                    allow_failover=True,
                    reason=op.reason,
                    priority=op.priority,
                )
            ]
            for instance in _primaries(ctx.snapshot, node)
        ]

    def hooks(self, snapshot: Snapshot, plan: Jobs) -> HookPoint:
        node = _node(snapshot, self.op.node_uuid or self.op.node_name)
        variables = {
            **node_variables(node),
            "ALLOW_RUNTIME_CHANGES": text(self.op.allow_runtime_changes),
        }
        return on_nodes("node-migrate", variables, snapshot)


class LUNodeEvacuate(EvacuationUnit[OpNodeEvacuate]):
    """Move the instances off a node, each by a job of its own."""

    def check_arguments(self) -> None:
        op = self.op
        if op.mode not in EVACUATION_MODES:
            raise InputError(f"must be one of {', '.join(EVACUATION_MODES)}", "mode")
        self._choice.check()

    @property
    def _choice(self) -> TargetChoice:
        op = self.op
        return TargetChoice(op.remote_node_uuid or op.remote_node, op.iallocator)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        if self._choice.node is None:
            return [lock(Level.NODE, ALL, Mode.SHARED)]
        return [_shared(_node(snapshot, self.op.node_uuid or self.op.node_name))]

    async def check_prereq(self, ctx: UnitContext) -> Jobs:
        op = self.op
        node = _node(ctx.snapshot, op.node_uuid or op.node_name)
        remote = _other_node(ctx.snapshot, self._choice.node, node, "remote_node")
        if remote is None and not allocators_for(
            ctx.snapshot.cluster, RequestType.NODE_EVACUATE, op.iallocator
        ):
            raise PrereqError(
                "name the target node (--new-secondary) or an allocator (--iallocator): the cluster"
                " has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        if remote is None:
            return await self._proposed(ctx, node)
        leaving = _leaving(ctx.snapshot, node, op.mode)
        jobs = (self._job(instance, node, remote) for instance in leaving)
        return [[replace(job, reason=op.reason, priority=op.priority)] for job in jobs]

    async def _proposed(self, ctx: UnitContext, node: Node) -> Jobs:
        """Return the jobs of an allocator for the evacuation, all placed together (S100, S173)."""
        op = self.op
        leaving = _leaving(ctx.snapshot, node, op.mode)
        if not leaving:
            return []
        bound = [one.name for one in leaving if DISK_TEMPLATES[one.disk_template].is_local]
        if bound:
            raise PrereqError(
                f"only {node.name} has the disks of {', '.join(bound)}: name the target node"
                " (--new-secondary, or gnt-instance migrate and move for each)",
                ErrorCode.WRONG_STATE,
            )
        request = iallocator_requests.node_evacuate([one.name for one in leaving], op.mode)
        options = {"ignore-soft-errors": True} if op.ignore_soft_errors else None
        found = await proposed_moves(ctx, request, leaving, op.iallocator, options=options)
        say_moves(ctx, found)
        return jobs_of(found, op)

    def _job(self, instance: Instance, node: Node, remote: Node) -> OpCode:
        """Return the opcode by which one primary instance leaves the node: live if it runs, with disks if needed."""
        if instance.primary_node != node.uuid:
            return OpInstanceReplaceDisks(
                instance_name=instance.name,
                mode="replace_new_secondary",
                remote_node=remote.name,
                early_release=self.op.early_release,
            )
        if node.offline and DISK_TEMPLATES[instance.disk_template].is_local:
            raise PrereqError(
                f"{instance.name} has its only data on {node.name}, which is offline",
                ErrorCode.WRONG_STATE,
            )
        if DISK_TEMPLATES[instance.disk_template].is_local and instance.admin_state != "up":
            return OpInstanceMove(
                instance_name=instance.name,
                target_node=remote.name,
            )
        return OpInstanceMigrate(
            instance_name=instance.name,
            target_node=remote.name,
            allow_failover=True,
        )

    async def execute(self, ctx: UnitContext, plan: Jobs) -> Outcome:
        node = _node(ctx.snapshot, self.op.node_uuid or self.op.node_name)
        for left in [] if plan else pending_on(ctx, node):
            ctx.warn(left)
        return await super().execute(ctx, plan)


def _node(snapshot: Snapshot, given: str) -> Node:
    return resolve_node(snapshot, given)


def _other_node(snapshot: Snapshot, given: str | None, node: Node, field: str) -> Node | None:
    if given is None:
        return None
    found = resolve_node(snapshot, given)
    if found.uuid == node.uuid:
        raise InputError(f"{node.name} is the node to evacuate; choose another target", field)
    return found


def _primaries(snapshot: Snapshot, node: Node) -> list[Instance]:
    return sorted(snapshot.instances_on(node.uuid), key=lambda instance: instance.name)


def _leaving(snapshot: Snapshot, node: Node, mode: str) -> list[Instance]:
    """Return the instances that `mode` covers, by name."""
    primaries = [] if mode == SECONDARY_ONLY else _primaries(snapshot, node)
    secondaries = [
        one
        for one in snapshot.instances.values()
        if mode != PRIMARY_ONLY and node.uuid in one.secondary_nodes
    ]
    return sorted([*primaries, *secondaries], key=lambda one: one.name)


def _shared(node: Node) -> LockRequest:
    return lock(Level.NODE, [node.uuid], Mode.SHARED)
