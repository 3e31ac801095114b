"""Findings about the devices that switch nodes off, in a cluster with instances that recovery may move."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ganeti.base.errors import RpcError
from ganeti.config.fill import recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.fencing import PowerStatus
from ganeti.model.objects import Node, NodeUuid
from ganeti.model.recovery import Recovery
from ganeti.rpc.procedures.commands import FENCE_AGENT_PROBLEMS, FenceAgentsArgs
from ganeti.units.cluster.findings import Finding
from ganeti.units.context import UnitContext
from ganeti.units.oob.device import no_device, power_device, uses_power

NOT_FENCED = "ENODEFENCE"
STATUS_S = 5.0
AT_ONCE = 16


@dataclass(frozen=True)
class DeviceAnswers:
    """The answers of candidates about agents, and of devices about the power of nodes."""

    agents: Mapping[NodeUuid, dict[str, str] | RpcError] = field(default_factory=dict)
    status: Mapping[NodeUuid, PowerStatus] = field(default_factory=dict)


def has_protected(snapshot: Snapshot) -> bool:
    """Return whether recovery may move an instance, so that a lost node is fenced."""
    policies = (recovery_of(snapshot, one) for one in snapshot.instances.values())
    return Recovery.FAILOVER in policies


def _to_fence(snapshot: Snapshot) -> Sequence[Node]:
    """Return the nodes that recovery would switch off."""
    return [
        node
        for node in snapshot.nodes_by_name()
        if node.vm_capable and not node.offline and uses_power(snapshot, node)
    ]


async def device_answers(ctx: UnitContext) -> DeviceAnswers:
    """Ask candidates and devices; without devices no program runs."""
    snapshot, power = ctx.snapshot, ctx.services.power
    devices = {node.uuid: power_device(snapshot, node) for node in _to_fence(snapshot)}
    agents = {one.agent for one in devices.values() if one is not None} - {""}
    said: Mapping[NodeUuid, dict[str, str] | RpcError] = {}
    if agents:
        online = [node for node in snapshot.master_candidates() if not node.offline]
        args = FenceAgentsArgs(agents=sorted(agents))
        said = await ctx.call_all(online, FENCE_AGENT_PROBLEMS, args)
    if power is None:
        return DeviceAnswers(said)
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(uuid: NodeUuid) -> PowerStatus:
        async with places:
            return await power.status(uuid, STATUS_S)

    asked = [uuid for uuid, device in devices.items() if device is not None]
    answers = await asyncio.gather(*map(ask, asked))
    return DeviceAnswers(said, dict(zip(asked, answers, strict=True)))


def fence_findings(
    snapshot: Snapshot, answers: DeviceAnswers, named: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield nodes that recovery could not switch off, as warnings: other methods may fence them.

    `named`: the nodes whose missing device is reported as part of a greater problem.
    """
    for node in _to_fence(snapshot):
        device = power_device(snapshot, node)
        if device is None and node.name in named:
            continue
        if device is None:
            text = (
                f"cannot be fenced by power: {no_device(node)}; without a device, take power out of"
                " the node parameter fence_methods"
            )
            yield Finding(NOT_FENCED, "node", node.name, text, is_error=False)
            continue
        status = answers.status.get(node.uuid)
        if status is not None and status.is_on is None:
            text = f"{device.what} does not tell its power status: {status.why}; {device.hint}"
            yield Finding(NOT_FENCED, "node", node.name, text, is_error=False)
        elif status is not None and not status.is_on:
            text = f"is in use, but {device.what} says that its power is off: it may be another host's device"
            yield Finding(NOT_FENCED, "node", node.name, text, is_error=False)
    for uuid, problems in answers.agents.items():
        if not isinstance(problems, RpcError):
            for agent, why in problems.items():
                text = f"as the master it could fence no node by {agent}: {why}"
                yield Finding(NOT_FENCED, "node", snapshot.nodes[uuid].name, text, is_error=False)
