"""Asking an allocator without creating anything (S188)."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name, plain_name
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.objects import Disk
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.units.allocation import Demand, Wish, allocator_message, run_allocator
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.requests import check_disks, check_nics, check_template


@dataclass(frozen=True)
class AllocatorPlan:
    """What is asked, and of which allocator; none if only the question is wanted."""

    wish: Wish
    allocator: str


class LUTestAllocator(LogicalUnit[OpTestAllocator, AllocatorPlan]):
    """Show what an allocator would be sent (`in`), or what it answers (`out`)."""

    def check_arguments(self) -> None:
        op = self.op
        if op.mode != "allocate":
            raise InputError(f"{op.mode!r:.40} cannot be tested; known: allocate", "mode")
        if op.direction not in ("in", "out"):
            raise InputError("must be in or out", "direction")
        host_name(op.name, "name")
        if op.iallocator is not None:
            plain_name(op.iallocator, "iallocator")
        for field in ("memory", "vcpus"):
            if getattr(op, field) < 1:
                raise InputError("must be at least 1", field)
        check_disks(op.disks, None)
        check_nics(op.nics)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> AllocatorPlan:
        op, cluster = self.op, ctx.snapshot.cluster
        allocator = op.iallocator or cluster.default_iallocator
        if not allocator and op.direction == "out":
            raise PrereqError(
                "name an allocator: the cluster has no default one", ErrorCode.WRONG_INPUT
            )
        template = check_template(op.disk_template, cluster)
        check_disks(op.disks, template)
        demand = Demand(
            name=op.name,
            memory=op.memory,
            vcpus=op.vcpus,
            spindle_use=1,
            disks=tuple(Disk(uuid="", size=disk.size, template=template.name) for disk in op.disks),
            nics=tuple(wire.plain(nic) for nic in op.nics),
            disk_template=template.name,
            hypervisor=op.hypervisor or cluster.enabled_hypervisors[0],
            os=op.os,
            tags=tuple(op.tags),
        )
        return AllocatorPlan(Wish(demand), allocator if op.direction == "out" else "")

    async def execute(self, ctx: UnitContext, plan: AllocatorPlan) -> Outcome:
        message = await allocator_message(ctx, plan.wish)
        if not plan.allocator:
            return Outcome(wire.encode(message).decode())
        return Outcome((await run_allocator(ctx, plan.allocator, message)).stdout)
