"""Asking an allocator without creating anything (S188)."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name, plain_name
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.objects import Disk
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.units.allocation import Demand, allocator_message, run_allocator
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.requests import check_disks, check_nics, check_template


class LUTestAllocator(LogicalUnit[OpTestAllocator, Demand]):
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
        check_disks(op.disks, None)
        check_nics(op.nics)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> Demand:
        op, cluster = self.op, ctx.snapshot.cluster
        template = check_template(op.disk_template, cluster)
        check_disks(op.disks, template)
        return Demand(
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

    async def execute(self, ctx: UnitContext, plan: Demand) -> Outcome:
        message = await allocator_message(ctx, plan)
        if self.op.direction == "in":
            return Outcome(wire.encode(message).decode())
        allocator = self.op.iallocator or ctx.snapshot.cluster.default_iallocator
        if not allocator:
            raise PrereqError(
                "name an allocator: the cluster has no default one", ErrorCode.WRONG_INPUT
            )
        return Outcome((await run_allocator(ctx, allocator, message)).stdout)
