"""The common part of units on one existing instance."""

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import instance_spec
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import AdminState, AdminStateSource
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.instance import OnInstance
from ganeti.rpc.procedures.form import SHUTDOWN_LIMIT_S
from ganeti.rpc.procedures.instances import INSTANCE_INFO, InstanceArgs, RunningInstance
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import instance_variables
from ganeti.units.hooks.point import HookPoint, Later, on_nodes
from ganeti.units.instance.snapshot_checks import why_unfinished
from ganeti.units.node_choice import check_online

LONGEST_SHUTDOWN_S = int(SHUTDOWN_LIMIT_S) - 300
"""The longest shutdown time of a guest for which the node can still answer in time."""

HookNodes = tuple[Iterable[NodeUuid], Iterable[NodeUuid]]
"""The nodes of hooks, before and after."""

OpT = TypeVar("OpT", bound=OnInstance)
PlanT = TypeVar("PlanT")


class InstanceUnit(LogicalUnit[OpT, PlanT]):
    """A unit on one instance: its lock is exclusive, those of its nodes are shared, so that they do not change."""

    def instance(self, snapshot: Snapshot) -> Instance:
        """The instance of the opcode, by UUID, name or unique short name."""
        return resolve_instance(snapshot, self.op.instance_uuid or self.op.instance_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        return [
            lock(Level.INSTANCE, instance.name),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    hook: ClassVar[str | None] = None
    """The hooks that run around the unit."""
    _hooked: Instance | None = None

    def hooks(self, snapshot: Snapshot, plan: PlanT) -> HookPoint | None:
        """Return the hooks on the master and the nodes of the present instance; of the former one if it was removed."""
        if self.hook is None:
            return None
        before = self._hooked = self._hooked or self.instance(snapshot)
        now = snapshot.instances.get(before.uuid, before)
        requested, own = self.hook_requested(plan), self.hook_variables(snapshot, now, plan)
        variables = Later(lambda: {**instance_variables(snapshot, now, requested), **own})
        nodes, post = self.hook_nodes(before, plan)
        return on_nodes(self.hook, variables, snapshot, nodes, post)

    def hook_nodes(self, before: Instance, plan: PlanT) -> HookNodes:
        """Return the nodes for hooks beside the master, before and after; `before` is the former instance."""
        del plan
        return before.all_nodes, before.all_nodes

    def hook_requested(self, plan: PlanT) -> Instance | None:
        """Return the instance after the operation, if pre hooks must see that."""
        del plan
        return None

    def hook_variables(self, snapshot: Snapshot, instance: Instance, plan: PlanT) -> dict[str, str]:
        """Return variables for hooks beside those of the instance."""
        del snapshot, instance, plan
        return {}


def primary_node(ctx: UnitContext, instance: Instance) -> Node:
    """Return the node on which the instance is, or should be."""
    return ctx.snapshot.nodes[instance.primary_node]


def spec_of(ctx: UnitContext, instance: Instance, node: Node | None = None) -> InstanceSpec:
    """Return the instance in the form for a node, by default its primary one."""
    return instance_spec(ctx.snapshot, instance, NodeUuid(node.uuid) if node else None)


async def running_state(ctx: UnitContext, node: Node, instance: Instance) -> RunningInstance | None:
    """Return `node`'s present report on the instance; None if it is not there."""
    return await ctx.call(node, INSTANCE_INFO, InstanceArgs(instance=spec_of(ctx, instance)))


async def is_running(ctx: UnitContext, node: Node, instance: Instance) -> bool:
    """Return whether the guest is up or paused on `node`; a guest that powered itself off is down."""
    return has_running_guest(await running_state(ctx, node, instance))


def has_running_guest(state: RunningInstance | None) -> bool:
    """Return whether a node's report shows a guest that is up or paused; a guest that powered itself off is down."""
    return state is not None and state.has_guest and state.state != "shutdown"


def check_nothing_there(state: RunningInstance | None, node: Node, instance: Instance) -> None:
    """Refuse to bring an instance to a node that still has a guest or a copy of it."""
    if state is not None:
        raise PrereqError(
            f"something of {instance.name} is on {node.name} already, from an earlier migration;"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )


def put_instance(instance: Instance) -> Change:
    """Return the configuration change that records the plan's version of a locked instance."""

    def change(draft: Draft) -> None:
        draft.put(instance)

    return change


def set_admin_state(
    uuid: InstanceUuid, state: AdminState, source: AdminStateSource = AdminStateSource.ADMIN
) -> Change:
    """Return the configuration change that records the state requested by the administrator, or by the guest's user."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        new = replace(instance, admin_state=state, admin_state_source=source)
        if new != instance:
            draft.put(new)

    return change


def check_not_offline(instance: Instance) -> None:
    """Refuse to run an instance that is marked offline."""
    if instance.admin_state is AdminState.OFFLINE:
        raise PrereqError(f"instance {instance.name} is marked offline", ErrorCode.WRONG_STATE)


def check_not_migrating(instance: Instance, *, above_backup: bool = False) -> None:
    """Refuse to use a guest while it is unknown which of two nodes has it, or which disks it uses (G5, F20).

    With `above_backup` it may run above a backup, during a live restore.
    """
    if not above_backup and instance.restoring is not None and instance.restoring.live:
        raise PrereqError(f"{instance.name}: {why_unfinished(instance)}", ErrorCode.WRONG_STATE)
    if instance.switching is not None:
        raise PrereqError(
            f"a move of the disks of running {instance.name} was interrupted, and only its node knows which disks have"
            f" the last writes; run: {switch_remedy(instance)}",
            ErrorCode.WRONG_STATE,
        )
    if instance.migrating_to is not None:
        raise PrereqError(
            f"a migration of {instance.name} was interrupted, so the node of the guest is unknown;"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )


def switch_remedy(instance: Instance) -> str:
    """Return the commands that settle an interrupted move of the disks of a guest."""
    remedy = f"gnt-instance migrate --cleanup {instance.name}"
    if DISK_TEMPLATES[instance.disk_template].can_migrate:
        remedy += (
            "; if the node is lost, mark it offline, and let the instance continue with its old disks:"
            f" gnt-instance failover --ignore-consistency {instance.name}"
        )
    return remedy


async def check_down(
    ctx: UnitContext, instance: Instance, participle: str, *, above_backup: bool = False
) -> None:
    """Refuse unless the guest is down and should be; `participle` names the operation in the message."""
    check_not_migrating(instance, above_backup=above_backup)
    node = primary_node(ctx, instance)
    check_online(node)
    if instance.admin_state is AdminState.UP or await is_running(ctx, node, instance):
        raise PrereqError(
            f"instance {instance.name} must be down to be {participle};"
            f" run: gnt-instance shutdown {instance.name}",
            ErrorCode.WRONG_STATE,
        )


def check_shutdown_timeout(seconds: int, field: str) -> None:
    """Refuse times outside of the limits."""
    if not 0 <= seconds <= LONGEST_SHUTDOWN_S:
        raise InputError(f"must be from 0 to {LONGEST_SHUTDOWN_S} seconds", field)
