"""All data of instances, and the parameters of their consoles."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ganeti.base.errors import RpcError
from ganeti.config.fill import (
    filled_beparams,
    filled_hvparams,
    filled_osparams,
)
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model import wire
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.instance_view import snapshot_dictionary
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.instance import OpInstanceConsole, OpInstanceQueryData
from ganeti.model.params import Params
from ganeti.rpc.procedures.agent import AGENT_INFO, AgentInfo
from ganeti.rpc.procedures.disks import DISKS_INFO, DiskArgs, DiskInfo, DisksArgs
from ganeti.rpc.procedures.instances import INSTANCE_CONSOLE, InstanceArgs, RunningInstance
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, primary_node, running_state, spec_of
from ganeti.units.instance.snapshot_checks import why_unfinished
from ganeti.units.instance.views import SeenDisks, disk_view, nic_view
from ganeti.units.node_choice import check_online

UP = "up"
MOST_AT_ONCE = 32
"""The number of instances that nodes are queried about at once."""


class LUInstanceQueryData(LogicalUnit[OpInstanceQueryData, list[Instance]]):
    """Return the data of `gnt-instance info`; with `static` no node is queried."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        if not self.op.use_locking:
            return []
        return [
            lock(
                Level.INSTANCE,
                [instance.name for instance in self._instances(snapshot)],
                Mode.SHARED,
            )
        ]

    def _instances(self, snapshot: Snapshot) -> list[Instance]:
        if self.op.instances:
            return [resolve_instance(snapshot, name) for name in self.op.instances]
        return sorted(snapshot.instances.values(), key=lambda instance: instance.name)

    async def check_prereq(self, ctx: UnitContext) -> list[Instance]:
        return self._instances(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: list[Instance]) -> Outcome:
        gate = asyncio.Semaphore(MOST_AT_ONCE)

        async def describe(instance: Instance) -> dict[str, Any]:
            async with gate:
                return await self._describe(ctx, instance)

        found = await asyncio.gather(*(describe(instance) for instance in plan))
        return Outcome({one["name"]: one for one in found})

    async def _describe(self, ctx: UnitContext, instance: Instance) -> dict[str, Any]:
        snapshot, cluster = ctx.snapshot, ctx.snapshot.cluster
        node = primary_node(ctx, instance)
        group = snapshot.groups[node.group]
        others = [snapshot.nodes[uuid] for uuid in instance.secondary_nodes]
        target = snapshot.nodes.get(instance.migrating_to) if instance.migrating_to else None
        guest: RunningInstance | None = None
        state: str | None = None
        disks = SeenDisks()
        agent: AgentInfo | None = None
        if not self.op.static and not node.offline:
            guest, state, disks = await self._live(ctx, instance)
        if state == UP and filled_hvparams(cluster, instance).get("use_guest_agent"):
            agent = await self._asked_agent(ctx, instance)
        known = HYPERVISOR_PARAMS[instance.hypervisor]
        hv_actual = filled_hvparams(cluster, instance)
        return {
            "name": instance.name,
            "uuid": instance.uuid,
            "serial_no": instance.serial_no,
            "ctime": instance.ctime,
            "mtime": instance.mtime,
            "config_state": instance.admin_state,
            "run_state": state,
            "memory": _memory(guest, filled_beparams(snapshot, instance)),
            "migrating_to": target.name if target is not None else None,
            "guest_agent": None if agent is None else wire.plain(agent),
            "pnode": node.name,
            "pnode_group_uuid": group.uuid,
            "pnode_group_name": group.name,
            "snodes": [one.name for one in others],
            "snodes_group_uuids": [one.group for one in others],
            "snodes_group_names": [snapshot.groups[one.group].name for one in others],
            "os": instance.os,
            "os_instance": instance.osparams,
            "os_actual": filled_osparams(cluster, instance),
            "hypervisor": instance.hypervisor,
            "network_port": instance.network_port,
            "hv_instance": instance.hvparams,
            "hv_actual": {
                name: value
                for name, value in hv_actual.items()
                if not (name in known and known[name].is_global)
            },
            "be_instance": instance.beparams,
            "be_actual": filled_beparams(snapshot, instance),
            "nics": [nic_view(snapshot, instance, nic) for nic in instance.nics],
            "disk_template": instance.disk_template,
            "disks": [
                disk_view(snapshot, instance, index, disks) for index in range(len(instance.disks))
            ],
            "snapshots": [snapshot_dictionary(one) for one in instance.snapshots],
            "template": instance.template,
            "unfinished": why_unfinished(instance) or None,
            "tags": list(instance.tags),
        }

    async def _live(
        self, ctx: UnitContext, instance: Instance
    ) -> tuple[RunningInstance | None, str | None, SeenDisks]:
        node = primary_node(ctx, instance)
        try:
            guest = await running_state(ctx, node, instance)
        except RpcError as err:
            ctx.warn(str(err))
            return None, None, SeenDisks()
        others = [ctx.snapshot.nodes[uuid] for uuid in instance.secondary_nodes]
        return (
            guest,
            run_state(guest),
            SeenDisks(
                await self._disks(ctx, instance, node),
                await self._disks(ctx, instance, others[0]) if others else (),
            ),
        )

    async def _disks(self, ctx: UnitContext, instance: Instance, node: Node) -> Sequence[DiskInfo]:
        """Return the disks of an instance as a node sees them; nothing if it does not answer."""
        disks = spec_of(ctx, instance, node).disks
        if node.offline or not disks:
            return ()
        asked = [DiskArgs(instance_name=instance.name, disk=disk) for disk in disks]
        try:
            return await ctx.call(node, DISKS_INFO, DisksArgs(disks=asked))
        except RpcError as err:
            ctx.warn(str(err))
            return ()

    async def _asked_agent(self, ctx: UnitContext, instance: Instance) -> AgentInfo | None:
        """Return the guest's report about itself, if its agent answers."""
        node, args = primary_node(ctx, instance), InstanceArgs(instance=spec_of(ctx, instance))
        try:
            answer = await ctx.call(node, AGENT_INFO, args)
        except RpcError as err:
            ctx.warn(str(err))
            return None
        return answer


def _memory(guest: RunningInstance | None, beparams: Params) -> dict[str, Any] | None:
    """Return the memory of a running guest, its bounds, and why the node took some of it; in MiB."""
    if guest is None or not guest.has_guest:
        return None
    lowered = None if guest.lowered is None else wire.plain(guest.lowered)
    bounds = {"least": beparams["minmem"], "most": beparams["maxmem"]}
    return {"present": guest.memory, **bounds, "lowered": lowered}


IN_BETWEEN = "waiting in memory"
"""A guest after an interrupted migration: it does not run here, and its memory is preserved."""


def run_state(found: RunningInstance | None) -> str:
    """Return the state of a guest: up, paused, down, shut down by its user, or in memory between two nodes."""
    if found is None:
        return "down"
    if not found.has_guest:
        return IN_BETWEEN
    return {"shutdown": "user down", "paused": "paused"}.get(found.state, UP)


class LUInstanceConsole(InstanceUnit[OpInstanceConsole, Instance]):
    """Return the parameters of the console, from the instance's node."""

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        check_online(primary_node(ctx, instance))
        return instance

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node = primary_node(ctx, plan)
        console = await ctx.call(node, INSTANCE_CONSOLE, InstanceArgs(instance=spec_of(ctx, plan)))
        answer = wire.plain(console)
        answer |= {"instance": plan.name, "host": console.host or node.name}
        return Outcome(answer)
