"""Power control of hosts by their out-of-band programs or fence agents, which run on the master's node."""

import asyncio
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.fill import filled_ndparams
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Node, NodeUuid
from ganeti.model.opcodes.commands import OpOobCommand
from ganeti.model.outofband import OobCommand, parse_answer
from ganeti.rpc.procedures.commands import (
    FENCE_AGENT_RUN,
    LIMIT_S,
    OOB_RUN,
    CommandOutput,
    OobArgs,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.point import master_of
from ganeti.units.name_lists import nodes_named
from ganeti.units.oob.device import (
    ACTIONS,
    PowerDevice,
    commanded_device,
    no_device,
    power_device,
)

NORMAL, NO_DATA, UNAVAILABLE = 0, 2, 3
"""The status of a value in the result, as in queries."""
ENDS_POWER = (OobCommand.POWER_OFF, OobCommand.POWER_CYCLE)


@dataclass(frozen=True)
class Switched:
    """A node, and its device (None if it has none that can do it)."""

    node: Node
    device: PowerDevice | None


def oob_program(snapshot: Snapshot, node: Node) -> str:
    """Return the effective out-of-band program of a node; '' if there is none."""
    return str(filled_ndparams(snapshot, node)["oob_program"])


class LUOobCommand(LogicalUnit[OpOobCommand, list[Switched]]):
    """Run the out-of-band programs or the fence agents of nodes, one after the other."""

    def check_arguments(self) -> None:
        op = self.op
        if op.command not in tuple(OobCommand):
            raise InputError(f"must be one of {', '.join(OobCommand)}", "command")
        if not 0 < op.timeout <= LIMIT_S:
            raise InputError(f"must be from 1 to {LIMIT_S:g} seconds", "timeout")
        if not 0 <= op.power_delay <= LIMIT_S:
            raise InputError(f"must be from 0 to {LIMIT_S:g} seconds", "power_delay")

    @property
    def _named(self) -> list[str]:
        return self.op.node_uuids or self.op.node_names

    def _nodes(self, snapshot: Snapshot) -> list[Node]:
        nodes = nodes_named(snapshot, self._named)
        if self._named or OobCommand(self.op.command) not in ENDS_POWER:
            return nodes
        return [node for node in nodes if node.uuid != snapshot.cluster.master_node]

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        changes = OobCommand(self.op.command) not in (OobCommand.POWER_STATUS, OobCommand.HEALTH)
        uuids = [node.uuid for node in self._nodes(snapshot)]
        return [lock(Level.NODE, uuids, Mode.EXCLUSIVE if changes else Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> list[Switched]:
        snapshot, command = ctx.snapshot, OobCommand(self.op.command)
        plan = [Switched(node, _device(snapshot, node, command)) for node in self._nodes(snapshot)]
        for one in plan:
            name = one.node.name
            if self._named and one.device is None:
                raise PrereqError(_no_device(snapshot, one.node), ErrorCode.WRONG_STATE)
            if command in ENDS_POWER and one.node.uuid == snapshot.cluster.master_node:
                raise PrereqError(
                    f"node {name} is the master; before switching it off, move the master role to another node"
                    " (gnt-cluster master-failover)",
                    ErrorCode.WRONG_INPUT,
                )
            is_idle = one.node.offline or self.op.ignore_status
            if command is OobCommand.POWER_OFF and one.device and not is_idle:
                raise PrereqError(
                    f"node {name} is not marked offline, so it is not switched off: first run"
                    f" gnt-node modify --offline=yes {name}, or override the check (--ignore-status)",
                    ErrorCode.WRONG_STATE,
                )
        return plan

    async def execute(self, ctx: UnitContext, plan: list[Switched]) -> Outcome:
        command = OobCommand(self.op.command)
        result: list[list[Any]] = []
        powered: dict[NodeUuid, bool] = {}
        for position, one in enumerate(plan):
            if command is OobCommand.POWER_ON and position and one.device:
                await asyncio.sleep(self.op.power_delay)
            status, data = (
                await self._ask(ctx, one.device, command) if one.device else (UNAVAILABLE, None)
            )
            result.append([[NORMAL, one.node.name], [status, data]])
            if status == NORMAL:
                powered |= _now_powered(ctx, one.node, command, data)

        def change(draft: Draft) -> None:
            for uuid, is_on in powered.items():
                node = draft.nodes[uuid]
                if node.powered != is_on:
                    draft.put(replace(node, powered=is_on))

        return Outcome(result, change=change if powered else None)

    async def _ask(
        self, ctx: UnitContext, device: PowerDevice, command: OobCommand
    ) -> tuple[int, Any]:
        what = f"{command} of {device.node_name}"
        try:
            said = await self._run(ctx, device, command)
        except RpcError as err:
            ctx.warn(f"{what} failed: {err.reason}")
            return NO_DATA, None
        if device.agent and command is OobCommand.POWER_STATUS:
            is_on, why = device.judged(said)
            if is_on is not None:
                return NORMAL, {"powered": is_on}
            ctx.warn(f"{what} failed: {why}")
            return NO_DATA, None
        if said.status != 0:
            why = said.stderr or f"exit status {said.status}"
            ctx.warn(f"{what} failed: {why[:1000]}")
            return NO_DATA, None
        try:
            return NORMAL, None if device.agent else parse_answer(command, said.stdout)
        except ValueError as err:
            ctx.warn(f"{what}: {device.program}: {err}")
            return NO_DATA, None

    async def _run(
        self, ctx: UnitContext, device: PowerDevice, command: OobCommand
    ) -> CommandOutput:
        master, limit_s = master_of(ctx.snapshot), float(self.op.timeout)
        if device.agent:
            args = device.agent_args(ACTIONS[command], limit_s)
            return await ctx.call(master, FENCE_AGENT_RUN, args)
        ordered = OobArgs(
            program=device.program,
            command=command,
            node_name=device.node_name,
            timeout_s=limit_s,
        )
        return await ctx.call(master, OOB_RUN, ordered)


def _device(snapshot: Snapshot, node: Node, command: OobCommand) -> PowerDevice | None:
    device = commanded_device(snapshot, node)
    return None if device is not None and device.agent and command not in ACTIONS else device


def _no_device(snapshot: Snapshot, node: Node) -> str:
    device = commanded_device(snapshot, node)
    if device is None:
        return no_device(node)
    return (
        f"{device.agent} of node {node.name} can switch it on and off, and tell its power status; for its health, use"
        f" an out-of-band program: gnt-node modify --node-parameters oob_program=PATH {node.name}"
    )


def _now_powered(
    ctx: UnitContext, node: Node, command: OobCommand, data: Any
) -> dict[NodeUuid, bool]:
    """Return the power state to record for a node after an answer."""
    if command is OobCommand.POWER_STATUS and node.powered != data["powered"]:
        state = "on" if data["powered"] else "off"
        ctx.warn(f"{node.name} is switched {state}; the recorded state was different")
        return {node.uuid: data["powered"]}
    switched = {OobCommand.POWER_ON: True, OobCommand.POWER_OFF: False}.get(command)
    return {} if switched is None else {node.uuid: switched}


def check_powered(snapshot: Snapshot, node: Node) -> None:
    """Refuse to record the power of a node that no device controls."""
    if power_device(snapshot, node) is None:
        raise PrereqError(
            f"node {node.name} has neither a fence agent nor an out-of-band program, so its power is not known",
            ErrorCode.WRONG_STATE,
        )
