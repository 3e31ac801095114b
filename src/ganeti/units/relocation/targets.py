"""The choice of the node to which an instance is moved."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType, named_allocators
from ganeti.model.objects import Instance, Node
from ganeti.units.allocation import PlacementRequest, allocators_for, choose_nodes
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.instance.nic_checks import check_networks
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.node_choice import check_can_host
from ganeti.units.relocation.plan import Operation


@dataclass(frozen=True)
class TargetChoice:
    """The opcode's target: a node, or the allocator that chooses one."""

    node: str | None
    iallocator: str | None = None
    ignore_policy: bool = False
    ignore_consistency: bool = False
    """True if an outdated copy is acceptable."""

    def check(self) -> None:
        """Refuse contradictory arguments."""
        if self.iallocator and self.node:
            raise InputError("pass either a target node or an allocator, not both", "iallocator")
        named_allocators(self.iallocator)

    def locks(self, snapshot: Snapshot, instance: Instance) -> list[LockRequest]:
        """Lock the instance exclusively, and its nodes and the target shared: every node if an allocator chooses."""
        given = self.node
        if given is None and is_mirrored(instance):
            own = instance.all_nodes
            return [lock(Level.INSTANCE, instance.name), lock(Level.NODE, own, Mode.SHARED)]
        nodes = {*instance.all_nodes, resolve_node(snapshot, given).uuid} if given else ALL
        return [lock(Level.INSTANCE, instance.name), lock(Level.NODE, nodes, Mode.SHARED)]

    async def choose(
        self, ctx: UnitContext, instance: Instance, source: Node, operation: Operation
    ) -> Node:
        """Return a node other than `source` that accepts instances."""
        if is_mirrored(instance):
            return self._secondary(ctx, instance, source, operation)
        request = PlacementRequest(
            Demand.of(ctx.snapshot.cluster, instance),
            relocate_from=source,
            ignore_policy=self.ignore_policy,
        )
        if self.node:
            target = resolve_node(ctx.snapshot, self.node)
            if target.uuid == source.uuid:
                raise InputError(f"{instance.name} is on {source.name} already", "target_node")
            check_can_host(target)
            self._check_policy(ctx, instance, source, target)
            ctx.services.placements.place(request.placed_on(ctx, target))
            return target
        if DISK_TEMPLATES[instance.disk_template].is_local and instance.disks:
            raise PrereqError(
                f"the disks of {instance.name} are only on {source.name}, and allocators do not place such"
                f" instances again: name the target (--target-node NODE) to {operation} it with its disks",
                ErrorCode.WRONG_INPUT,
            )
        choice = await choose_nodes(ctx, self._allocators(ctx, operation), request)
        allocator, (target,) = choice.allocator, choice.nodes
        ctx.info(
            f"Selected nodes for instance {instance.name} via iallocator {allocator}: {target.name}"
        )
        if target.uuid == source.uuid:
            raise PrereqError(
                f"iallocator '{allocator}' chose {target.name}, the present node of the instance",
                ErrorCode.ENVIRONMENT,
            )
        self._check_policy(ctx, instance, source, target)
        return target

    def _secondary(
        self, ctx: UnitContext, instance: Instance, source: Node, operation: Operation
    ) -> Node:
        """Return the node with the copy; a move may name another node, which becomes the secondary first."""
        secondary = ctx.snapshot.nodes[instance.secondary_nodes[0]]
        target = resolve_node(ctx.snapshot, self.node) if self.node else secondary
        if target.uuid == source.uuid:
            raise InputError(f"{instance.name} is on {source.name} already", "target_node")
        if self.iallocator or (target.uuid != secondary.uuid and operation is not Operation.MOVE):
            raise PrereqError(
                f"the data of {instance.name} is on {secondary.name} besides {source.name}, so it can {operation} only"
                f" there; for another node: gnt-instance replace-disks -n NODE {instance.name}",
                ErrorCode.WRONG_INPUT,
            )
        check_can_host(target)
        self._check_policy(ctx, instance, source, target)
        request = PlacementRequest(
            Demand.of(ctx.snapshot.cluster, instance), ignore_policy=self.ignore_policy
        )
        ctx.services.placements.place(request.placed_on(ctx, target, source))
        return target

    def _check_policy(
        self, ctx: UnitContext, instance: Instance, source: Node, target: Node
    ) -> None:
        """Require that the policy of another group allows the instance; within its own group nothing changes."""
        if source.group != target.group:
            group = ctx.snapshot.groups[target.group]
            check_networks(ctx, group, instance)
            check_instance_policy(ctx, instance, ignore=self.ignore_policy, groups=[group])

    def _allocators(self, ctx: UnitContext, operation: Operation) -> tuple[str, ...]:
        found = allocators_for(ctx.snapshot.cluster, RequestType.RELOCATE, self.iallocator)
        if not found:
            raise PrereqError(
                f"name a node (--target-node) or an allocator (--iallocator) to {operation}:"
                " the cluster has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        return found
