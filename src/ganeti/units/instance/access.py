"""What units on one existing instance share."""

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
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import AdminState, AdminStateSource
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.instance import OnInstance
from ganeti.rpc.procedures.form import SHUTDOWN_LIMIT_S
from ganeti.rpc.procedures.instances import INSTANCE_INFO, InstanceArgs, RunningInstance
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import instance_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.node_choice import check_online

LONGEST_SHUTDOWN_S = int(SHUTDOWN_LIMIT_S) - 300
"""How long a guest may be given to shut down, so that the node can still answer in time."""

HookNodes = tuple[Iterable[NodeUuid], Iterable[NodeUuid]]
"""Where hooks run, before and after."""

OpT = TypeVar("OpT", bound=OnInstance)
PlanT = TypeVar("PlanT")


class InstanceUnit(LogicalUnit[OpT, PlanT]):
    """A unit on one instance: locks it alone, and its nodes shared, so that they stay what they are."""

    def instance(self, snapshot: Snapshot) -> Instance:
        """The instance that the opcode names, by UUID, name or unique short name."""
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
        """On the master and the nodes of the instance, as it is then; as it was, once it is gone."""
        if self.hook is None:
            return None
        before = self._hooked = self._hooked or self.instance(snapshot)
        now = snapshot.instances.get(before.uuid, before)
        variables = {
            **instance_variables(snapshot, now, self.hook_requested(plan)),
            **self.hook_variables(snapshot, now, plan),
        }
        nodes, post = self.hook_nodes(before, plan)
        return on_nodes(self.hook, variables, snapshot, nodes, post)

    def hook_nodes(self, before: Instance, plan: PlanT) -> HookNodes:
        """Return where hooks run beside the master, before and after; `before` is the instance as it was."""
        del plan
        return before.all_nodes, before.all_nodes

    def hook_requested(self, plan: PlanT) -> Instance | None:
        """Return what the operation makes of the instance, if pre hooks are to see that."""
        del plan
        return None

    def hook_variables(self, snapshot: Snapshot, instance: Instance, plan: PlanT) -> dict[str, str]:
        """The variables of hooks beside those of the instance."""
        del snapshot, instance, plan
        return {}


def primary_node(ctx: UnitContext, instance: Instance) -> Node:
    """The node on which the instance is, or should be."""
    return ctx.snapshot.nodes[instance.primary_node]


def spec_of(ctx: UnitContext, instance: Instance, node: Node | None = None) -> InstanceSpec:
    """The instance as a node, its primary one if none is given, needs it."""
    return instance_spec(ctx.snapshot, instance, NodeUuid(node.uuid) if node else None)


async def running_state(ctx: UnitContext, node: Node, instance: Instance) -> RunningInstance | None:
    """Return what `node` knows of the instance now; None if it is not there."""
    return await ctx.call(node, INSTANCE_INFO, InstanceArgs(instance=spec_of(ctx, instance)))


async def is_running(ctx: UnitContext, node: Node, instance: Instance) -> bool:
    """Return whether the guest is up on `node`, be it paused; one that has powered itself off is not."""
    return has_running_guest(await running_state(ctx, node, instance))


def has_running_guest(state: RunningInstance | None) -> bool:
    """Return whether a node that says this has the guest, be it paused; one that has powered itself off is none."""
    return state is not None and state.has_guest and state.state != "shutdown"


def check_nothing_there(state: RunningInstance | None, node: Node, instance: Instance) -> None:
    """Refuse to bring an instance to a node where something of it is left."""
    if state is not None:
        raise PrereqError(
            f"something of {instance.name} is on {node.name} already, from an earlier migration;"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )


def put_instance(instance: Instance) -> Change:
    """The change of configuration that makes an instance, which is locked, what a plan says."""

    def change(draft: Draft) -> None:
        draft.put(instance)

    return change


def set_admin_state(
    uuid: InstanceUuid, state: AdminState, source: AdminStateSource = AdminStateSource.ADMIN
) -> Change:
    """The change of configuration that records what the administrator, or the guest's user, wants."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        new = replace(instance, admin_state=state, admin_state_source=source)
        if new != instance:
            draft.put(new)

    return change


def check_not_offline(instance: Instance) -> None:
    """Refuse to run what is marked offline."""
    if instance.admin_state is AdminState.OFFLINE:
        raise PrereqError(f"instance {instance.name} is marked offline", ErrorCode.WRONG_STATE)


def check_not_migrating(instance: Instance) -> None:
    """Refuse to touch a guest while it is not known on which of two nodes it is (G5, F20)."""
    if instance.migrating_to is not None:
        raise PrereqError(
            f"a migration of {instance.name} broke off, so it is not known where the guest is;"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )


async def check_down(ctx: UnitContext, instance: Instance, participle: str) -> None:
    """Refuse unless the guest is known to be down, and is to be; `participle` says for what."""
    check_not_migrating(instance)
    node = primary_node(ctx, instance)
    check_online(node)
    if instance.admin_state is AdminState.UP or await is_running(ctx, node, instance):
        raise PrereqError(
            f"instance {instance.name} must be down to be {participle};"
            f" run: gnt-instance shutdown {instance.name}",
            ErrorCode.WRONG_STATE,
        )


def check_shutdown_timeout(seconds: int, field: str) -> None:
    """Refuse times that no guest can be given."""
    if not 0 <= seconds <= LONGEST_SHUTDOWN_S:
        raise InputError(f"must be from 0 to {LONGEST_SHUTDOWN_S} seconds", field)
