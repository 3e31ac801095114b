"""The placement of many new instances by one request to an allocator."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import full_name
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.iallocator import AllocatorAnswer, RequestType, named_allocators
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.protocols import iallocator_requests
from ganeti.protocols.iallocator_results import placed
from ganeti.units.allocation import allocators_for, ask, usable_node
from ganeti.units.allocator_message import cluster_message
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.cloning import CLONE
from ganeti.units.instance.create_plan import check_create_arguments, new_instance
from ganeti.units.instance.requests import check_disks, check_template

INSTANCES_LIMIT = 1000


def _has_node(request: OpInstanceCreate) -> bool:
    return bool(request.pnode or request.pnode_uuid)


@dataclass(frozen=True)
class MultiPlan:
    """A job for each placed instance, and the names of the others."""

    jobs: list[list[OpCode]]
    failed: list[str]


class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc, MultiPlan]):
    """Choose nodes for many new instances at once, unless they name nodes; a job of its own creates each."""

    def check_arguments(self) -> None:
        op = self.op
        named_allocators(op.iallocator)
        if not 0 < len(op.instances) <= INSTANCES_LIMIT:
            raise InputError(f"must have from 1 to {INSTANCES_LIMIT} instances", "instances")
        for number, one in enumerate(op.instances):
            where = f"instances[{number}]"
            if one.iallocator:
                raise InputError("must not name an allocator: one allocator places all", where)
            if one.mode == CLONE and not _has_node(one):
                raise InputError("must name the node of the clone (pnode)", where)
            try:
                check_create_arguments(one)
            except InputError as err:
                raise InputError(err.message, where) from err
        if len({_has_node(one) for one in op.instances}) > 1:
            raise InputError("name a node for each instance or for none", "instances")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> MultiPlan:
        op, cluster = self.op, ctx.snapshot.cluster
        requests = {full_name(ctx.snapshot, one.instance_name): one for one in op.instances}
        if len(requests) < len(op.instances):
            names = Counter(full_name(ctx.snapshot, one.instance_name) for one in op.instances)
            twice = next(name for name, count in names.items() if count > 1)
            raise InputError(f"{twice} occurs twice", "instances")
        if _has_node(op.instances[0]):
            return MultiPlan([[self._job(request)] for request in requests.values()], [])
        allocators = allocators_for(cluster, RequestType.MULTI_ALLOCATE, op.iallocator)
        if not allocators:
            raise PrereqError(
                "name an allocator (--iallocator): the cluster has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        demands = [self._demand(ctx, name, one) for name, one in requests.items()]
        request = iallocator_requests.multi_allocate(
            [
                iallocator_requests.allocate(one.name, one.required_nodes, one.message())
                for one in demands
            ]
        )
        needed = {one.name: one.required_nodes for one in demands}
        template = demands[0].disk_template

        def read(name: str, answer: AllocatorAnswer) -> tuple[dict[str, list[str]], list[str]]:
            done, failed = placed(name, answer, needed)
            for nodes in done.values():
                for node in nodes:
                    usable_node(ctx, name, node)
            return done, failed

        async def make(*, fresh: bool) -> dict[str, Any]:
            return await cluster_message(ctx, request, template=template, fresh=fresh)

        async with ctx.services.placements.deciding:
            _allocator, (done, failed) = await ask(ctx, allocators, make, read)
        made = [replace(requests[name], pnode=nodes[0]) for name, nodes in done.items()]
        return MultiPlan([[self._job(request)] for request in made], failed)

    def _demand(self, ctx: UnitContext, name: str, request: OpInstanceCreate) -> Demand:
        if ctx.snapshot.instance_by_name(name):
            raise PrereqError(f"instance {name} exists already", ErrorCode.EXISTS)
        template = check_template(request.disk_template, ctx.snapshot.cluster)
        check_disks(request.disks, template)
        instance = new_instance(ctx, replace(request, instance_name=name), template, None)
        return Demand.of(ctx.snapshot.cluster, instance)

    def _job(self, request: OpInstanceCreate) -> OpCode:
        return replace(request, reason=self.op.reason, priority=self.op.priority)

    async def execute(self, ctx: UnitContext, plan: MultiPlan) -> Outcome:
        for name in plan.failed:
            ctx.warn(f"no node has room for {name}")
        return Outcome({**self._placed(plan), "jobs": []}, jobs=plan.jobs)

    def dry_run_result(self, ctx: UnitContext, plan: MultiPlan) -> Any:
        del ctx
        ops = [op for job in plan.jobs for op in job if isinstance(op, OpInstanceCreate)]
        return {**self._placed(plan), "nodes": {op.instance_name: op.pnode for op in ops}}

    def _placed(self, plan: MultiPlan) -> dict[str, list[str]]:
        """Return the names of the placed instances, in the order of the jobs, and of the others."""
        ops = [op for job in plan.jobs for op in job if isinstance(op, OpInstanceCreate)]
        return {"allocatable": [op.instance_name for op in ops], "failed": plan.failed}
