"""Tests of the devices that switch nodes off, and the passwords of fence agents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError
from ganeti.config.fill import filled_ndparams
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.fencing import PowerStatus, check_password
from ganeti.model.objects import Node
from ganeti.model.opcodes.fencing import OpNodeFencePassword, OpNodeFenceTest
from ganeti.model.params import NO_FENCING
from ganeti.model.recovery import FenceMethod
from ganeti.rpc.procedures.commands import FENCE_AGENT_PROBLEMS, FenceAgentsArgs
from ganeti.rpc.procedures.host import HypervisorsArgs
from ganeti.rpc.procedures.instances import INSTANCES_INFO
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.fenced_storage import at_risk, why_not_fenced
from ganeti.units.job_source import check_is_local
from ganeti.units.oob.device import PowerDevice, no_device, power_device
from ganeti.units.services import PowerControl

STATUS_S = 20.0


class LUNodeFencePassword(LogicalUnit[OpNodeFencePassword, Node]):
    """Store a password; neither the job nor any answer contains it (G23)."""

    def check_arguments(self) -> None:
        if self.op.password:
            check_password(self.op.password)

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE, self._node(snapshot).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Node:
        check_is_local(ctx, "the password of a fence agent")
        return self._node(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        password = self.op.password

        def change(draft: Draft) -> None:
            draft.put(replace(draft.nodes[plan.uuid], fence_secret=password))

        done = "stored" if password else "removed"
        return Outcome(f"The password for the fence agent of {plan.name} is {done}", change=change)


@dataclass(frozen=True)
class FenceTest:
    """A node, its device, and the power of all nodes; both are None if only storage fences the node."""

    node: Node
    device: PowerDevice | None
    power: PowerControl | None


class LUNodeFenceTest(LogicalUnit[OpNodeFenceTest, FenceTest]):
    """Ask a device for the power status, or switch the node off."""

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        mode = Mode.EXCLUSIVE if self.op.off else Mode.SHARED
        return [lock(Level.NODE, self._node(snapshot).uuid, mode)]

    async def check_prereq(self, ctx: UnitContext) -> FenceTest:
        node, power = self._node(ctx.snapshot), ctx.services.power
        device = power_device(ctx.snapshot, node)
        if device is None and (self.op.off or not _uses_storage(ctx.snapshot, node)):
            raise PrereqError(no_device(node), ErrorCode.WRONG_STATE)
        if device is not None and power is None:
            raise PrereqError("this master switches no node off", ErrorCode.WRONG_STATE)
        if self.op.off:
            await _check_may_end(ctx, node)
        return FenceTest(node, device, power)

    async def execute(self, ctx: UnitContext, plan: FenceTest) -> Outcome:
        node, device, power = plan.node, plan.device, plan.power
        if device is None or power is None:
            return Outcome(_result(ctx.snapshot, plan, None, []))
        if self.op.off:
            ctx.step(f"switching {node.name} off by {device.what}")
            await ctx.run.started()
            result = await power.cut(node.uuid)
            if not result.is_fenced:
                raise ExecError(
                    f"node {node.name} is not known to be off: {result.detail}; {device.hint}"
                )
        ctx.step(f"asking {device.what} for the power status of {node.name}")
        status = await power.status(node.uuid, min(STATUS_S, device.timeout_s))
        if status.is_on is None:
            raise ExecError(
                f"{device.what} did not answer for node {node.name} ({status.seconds:.1f} s): {status.why};"
                f" {device.hint}"
            )
        notes = [*_notes(ctx.snapshot, node), *await _missing(ctx, device)]
        return Outcome(_result(ctx.snapshot, plan, status, notes))


async def _check_may_end(ctx: UnitContext, node: Node) -> None:
    """Raise PrereqError if the node may run instances, or is the master."""
    if node.uuid == ctx.snapshot.cluster.master_node:
        raise PrereqError(
            f"node {node.name} is the master, which never switches itself off",
            ErrorCode.WRONG_INPUT,
        )
    if node.offline:
        return
    if node.maintenance is None:
        raise PrereqError(
            f"node {node.name} is in use, so it is not switched off: first run"
            f" gnt-node maintenance on {node.name}",
            ErrorCode.WRONG_STATE,
        )
    args = HypervisorsArgs(hypervisors=list(ctx.snapshot.cluster.enabled_hypervisors))
    try:
        guests = await ctx.call(node, INSTANCES_INFO, args)
    except RpcError as err:
        raise PrereqError(
            f"node {node.name} does not answer, so it may run instances ({err.reason})",
            ErrorCode.WRONG_STATE,
        ) from err
    if guests:
        raise PrereqError(
            f"node {node.name} runs {len(guests)} instances, for example {guests[0].name}",
            ErrorCode.WRONG_STATE,
        )


def _methods(snapshot: Snapshot, node: Node) -> list[str]:
    words = str(filled_ndparams(snapshot, node)["fence_methods"]).split()
    return [one for one in words if one != NO_FENCING]


def _notes(snapshot: Snapshot, node: Node) -> Iterator[str]:
    if FenceMethod.POWER not in _methods(snapshot, node):
        yield "automatic recovery does not use this device: the node parameter fence_methods has no power"


async def _missing(ctx: UnitContext, device: PowerDevice) -> list[str]:
    """Return the candidates that could not run the agent after a change of master."""
    if not device.agent:
        return []
    online = [node for node in ctx.snapshot.master_candidates() if not node.offline]
    answers = await ctx.call_all(
        online, FENCE_AGENT_PROBLEMS, FenceAgentsArgs(agents=[device.agent])
    )
    return [
        f"master candidate {ctx.snapshot.nodes[uuid].name} cannot run {agent}: {why}"
        for uuid, problems in sorted(answers.items())
        if not isinstance(problems, RpcError)
        for agent, why in problems.items()
    ]


def _uses_storage(snapshot: Snapshot, node: Node) -> bool:
    return FenceMethod.STORAGE in _methods(snapshot, node)


def _result(
    snapshot: Snapshot, plan: FenceTest, status: PowerStatus | None, notes: list[str]
) -> dict[str, Any]:
    node, device = plan.node, plan.device
    storage = (
        {one.name: why_not_fenced(one) for one in at_risk(snapshot, node.uuid)}
        if _uses_storage(snapshot, node)
        else {}
    )
    return {
        "node": node.name,
        "device": device.what if device else "",
        "kind": ("agent" if device.agent else "program") if device else "",
        "has_password": bool(device and device.password),
        "methods": _methods(snapshot, node),
        "timeout_s": device.timeout_s if device else 0.0,
        "is_on": status.is_on if status else None,
        "seconds": round(status.seconds, 3) if status else 0.0,
        "storage": storage,
        "notes": notes,
        "plan": _power_plan(node, device, status) if device and status else _plan(node, storage),
    }


def _power_plan(node: Node, device: PowerDevice, status: PowerStatus) -> str:
    if not status.is_on:
        return f"{node.name} is off."
    how = f"{device.what} switches {node.name} off, at most {device.timeout_s:g} s"
    return f"If {node.name} is lost: {how}, until its answer to a status question is off."


def _plan(node: Node, storage: Mapping[str, str]) -> str:
    """Return what its storage does for a node without a device; `storage`: instance -> why not, or ''."""
    if not storage:
        return f"If {node.name} is lost: nothing is to be done, since no protected instance runs on it."
    refused = sum(not why for why in storage.values())
    rest = "; the others stay down until an administrator confirms that the node is off"
    return (
        f"If {node.name} is lost, and no other method fences it: the storage of {refused} of {len(storage)} protected"
        f" instances refuses its writes{rest if refused < len(storage) else ''}."
    )
