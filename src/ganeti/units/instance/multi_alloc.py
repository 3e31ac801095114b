"""Many new instances, placed by one request to an allocator (S175, S179)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import full_name
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import AllocatorAnswer, RequestType
from ganeti.model.objects import Node
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.protocols import iallocator_requests, iallocator_results
from ganeti.units.allocation import Wish, allocators_for, ask, usable_node
from ganeti.units.allocator_message import cluster_message
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.evacuation import check_allocator_name
from ganeti.units.instance.create_plan import check_create_arguments, new_instance
from ganeti.units.instance.requests import check_disks, check_template

INSTANCES_LIMIT = 1000


@dataclass(frozen=True)
class MultiPlan:
    """An opcode for each instance that has a place, and the names of the others."""

    ops: list[OpInstanceCreate]
    nodes: list[list[str]]
    failed: list[str]


class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc, MultiPlan]):
    """Place many instances at once and submit a job for each that has a place.

    The result has `allocatable` and `failed`, names of instances, beside the jobs.
    """

    def check_arguments(self) -> None:
        op = self.op
        check_allocator_name(op.iallocator)
        if not 1 <= len(op.instances) <= INSTANCES_LIMIT:
            raise InputError(f"must be from 1 to {INSTANCES_LIMIT}", "instances")
        for number, one in enumerate(op.instances):
            where = f"instances[{number}]"
            _check_one(one, where)
            try:
                check_create_arguments(one)
            except InputError as err:
                raise InputError(f"{where}.{err.message}") from err

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        names = [full_name(snapshot, one.instance_name) for one in self.op.instances]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{twice} is there twice", "instances")
        self.op = replace(
            self.op,
            instances=[
                replace(one, instance_name=name)
                for one, name in zip(self.op.instances, names, strict=True)
            ],
        )
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> MultiPlan:
        op, snapshot = self.op, ctx.snapshot
        allocators = allocators_for(snapshot.cluster, RequestType.MULTI_ALLOCATE, op.iallocator)
        if not allocators:
            raise PrereqError(
                "name an allocator (--iallocator): the cluster has no default one for multi-allocate",
                ErrorCode.WRONG_INPUT,
            )
        wishes = {one.instance_name: self._wish(ctx, one) for one in op.instances}
        places = await _places(ctx, allocators, wishes)
        failed = [name for name in wishes if name not in places]
        if failed:
            ctx.info(f"There is no place for {', '.join(failed)}")
        ops = [
            replace(
                one,
                pnode=places[one.instance_name][0].name,
                reason=[*op.reason, *one.reason],
                priority=op.priority,
            )
            for one in op.instances
            if one.instance_name in places
        ]
        nodes = [[node.name for node in places[one.instance_name]] for one in ops]
        return MultiPlan(ops, nodes, failed)

    def _wish(self, ctx: UnitContext, one: OpInstanceCreate) -> Wish:
        """What is asked for one instance; PrereqError for what could not be created."""
        if ctx.snapshot.instance_by_name(one.instance_name):
            raise PrereqError(f"instance {one.instance_name} exists already", ErrorCode.EXISTS)
        template = check_template(one.disk_template, ctx.snapshot.cluster)
        check_disks(one.disks, template)
        return Wish(
            Demand.of(ctx.snapshot.cluster, new_instance(ctx, one, template)),
            will_run=one.start and not one.no_install,
            group_name=one.group_name,
        )

    async def execute(self, ctx: UnitContext, plan: MultiPlan) -> Outcome:
        for one, nodes in zip(plan.ops, plan.nodes, strict=True):
            ctx.log(f"Selected nodes for {one.instance_name}: {', '.join(nodes)}")
        result = {"allocatable": [one.instance_name for one in plan.ops], "failed": plan.failed}
        jobs = [[one] for one in plan.ops]
        return Outcome(result if jobs else {**result, "jobs": []}, jobs=jobs)

    def dry_run_result(self, ctx: UnitContext, plan: MultiPlan) -> Any:
        del ctx
        placed = [
            [one.instance_name, nodes] for one, nodes in zip(plan.ops, plan.nodes, strict=True)
        ]
        return {"allocatable": placed, "failed": plan.failed}


def _check_one(one: OpInstanceCreate, where: str) -> None:
    """Refuse what says where one instance goes, or when."""
    for field in ("pnode", "pnode_uuid", "iallocator"):
        if getattr(one, field):
            raise InputError("an allocator places all of them together", f"{where}.{field}")
    for field in ("dry_run", "depends"):
        if getattr(one, field):
            raise InputError("is for the whole request only", f"{where}.{field}")


async def _places(
    ctx: UnitContext, allocators: Sequence[str], wishes: dict[str, Wish]
) -> dict[str, list[Node]]:
    """The nodes of each instance that has a place.

    They are not kept free: each instance's own job checks again, and fails where another was faster.
    """
    request = iallocator_requests.multi_allocate([wish.request() for wish in wishes.values()])
    wanted = {name: wish.demand.required_nodes for name, wish in wishes.items()}
    templates = [wish.demand.disk_template for wish in wishes.values()]
    template = next((one for one in templates if DISK_TEMPLATES[one].has_disks), templates[0])

    def read(allocator: str, answer: AllocatorAnswer) -> dict[str, list[Node]]:
        done, _failed = iallocator_results.placed(allocator, answer, wanted)
        return {
            name: [usable_node(ctx, allocator, node) for node in nodes]
            for name, nodes in done.items()
        }

    async def make(*, fresh: bool) -> dict[str, Any]:
        return await cluster_message(ctx, request, template=template, fresh=fresh)

    async with ctx.services.placements.deciding:
        _allocator, places = await ask(ctx, allocators, make, read)
    return places
