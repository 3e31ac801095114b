"""Balancing of a cluster, and its free capacity."""

from typing import Any

from ganeti.base.errors import InputError
from ganeti.config.fill import filled_ipolicy
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_usage
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.iallocator import BUILT_IN, RequestType, named_allocators
from ganeti.model.objects import Disk
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.placing import OpClusterBalance, OpClusterCapacity
from ganeti.protocols import iallocator_requests
from ganeti.protocols.iallocator_results import Moves, fitting
from ganeti.units.allocation import allocators_for, ask
from ganeti.units.allocator_message import cluster_message
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.requests import check_disks, check_nics, check_template
from ganeti.units.relocation.evacuation import jobs_of, proposed_moves


class LUClusterBalance(LogicalUnit[OpClusterBalance, Moves]):
    """Submit the moves that make the cluster more even; the default is the built-in allocator."""

    def check_arguments(self) -> None:
        named_allocators(self.op.iallocator)
        if self.op.max_moves is not None and self.op.max_moves < 0:
            raise InputError("must not be negative", "max_moves")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> Moves:
        op = self.op
        request = iallocator_requests.balance(op.max_moves)
        instances = list(ctx.snapshot.instances.values())
        return await proposed_moves(ctx, request, instances, op.iallocator or BUILT_IN)

    async def execute(self, ctx: UnitContext, plan: Moves) -> Outcome:
        result = {**_shown(ctx.snapshot, plan), "jobs": []}
        return Outcome(result, jobs=jobs_of(plan, self.op))

    def dry_run_result(self, ctx: UnitContext, plan: Moves) -> Any:
        return _shown(ctx.snapshot, plan)


def _shown(snapshot: Snapshot, plan: Moves) -> dict[str, Any]:
    """Return the allocator's `moved` with each instance's nodes `before` the move and the moves that it `needs`."""
    nodes = {
        one.name: [snapshot.nodes[uuid].name for uuid in one.all_nodes]
        for one in snapshot.instances.values()
    }
    before = []
    for name, _group, after in plan.moved:
        before.append(nodes[name])
        nodes[name] = after
    return {"moved": plan.moved, "before": before, "needs": plan.needs, "info": plan.info}


class LUClusterCapacity(LogicalUnit[OpClusterCapacity, list[list[str]]]):
    """Count how many more instances of one size fit, in the order in which they would be placed."""

    def check_arguments(self) -> None:
        op = self.op
        named_allocators(op.iallocator)
        for field in ("memory", "vcpus", "spindle_use", "max_instances"):
            value = getattr(op, field)
            if value is not None and value < 1:
                raise InputError("must be at least 1", field)
        check_disks(op.disks or [], None)
        check_nics(op.nics or [])

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> list[list[str]]:
        op, cluster = self.op, ctx.snapshot.cluster
        allocators = allocators_for(cluster, RequestType.CAPACITY, op.iallocator or BUILT_IN)
        demand = self._demand(ctx.snapshot)
        request = iallocator_requests.capacity(
            demand.required_nodes, demand.message(), op.max_instances
        )

        async def make(*, fresh: bool) -> dict[str, Any]:
            return await cluster_message(ctx, request, template=demand.disk_template, fresh=fresh)

        _allocator, places = await ask(
            ctx,
            allocators,
            make,
            lambda name, answer: fitting(name, answer, demand.required_nodes),
        )
        return places

    def _demand(self, snapshot: Snapshot) -> Demand:
        """Return the instance to count: the given values, and the policy's standard values for the others."""
        op, cluster = self.op, snapshot.cluster
        std = filled_ipolicy(cluster, None)["std"]
        template = check_template(op.disk_template, cluster)
        asked = op.disks
        if asked is None:
            number = std["disk-count"] if template.has_disks else 0
            asked = [DiskRequest(size=std["disk-size"])] * number
        check_disks(asked, template)
        disks = tuple(Disk(uuid="", size=one.size, template=template.name) for one in asked)
        return Demand(
            name="new",
            memory=op.memory or std["memory-size"],
            vcpus=op.vcpus or std["cpu-count"],
            spindle_use=op.spindle_use or std["spindle-use"],
            disks=disks,
            disk_space_total=disk_usage(cluster, disks),
            nics=tuple(wire.plain(nic) for nic in op.nics or ())
            if op.nics is not None
            else ({},) * std["nic-count"],
            disk_template=template.name,
            hypervisor=cluster.enabled_hypervisors[0],
            os="",
            tags=(),
        )

    async def execute(self, ctx: UnitContext, plan: list[list[str]]) -> Outcome:
        demand = self._demand(ctx.snapshot)
        spec = {
            "memory": demand.memory,
            "vcpus": demand.vcpus,
            "disks": [one.size for one in demand.disks],
            "disk_template": demand.disk_template,
        }
        return Outcome({"spec": spec, "count": len(plan), "nodes": plan})
