"""Sending of a running guest to another node: the driver of the migration core."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError, RpcFailed
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import Way
from ganeti.model.names import DiskRole
from ganeti.model.objects import InstanceUuid, NodeUuid
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_INFO,
    MIGRATION_RUN,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
    finishing,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.instance.disks import is_mirrored, open_disks, wait_for_sync
from ganeti.units.instance.nvram import forget_nvram_step
from ganeti.units.mirrors.current import await_current, lacks_copy
from ganeti.units.relocation.core import Event, Facts, Instruction, Migration
from ganeti.units.relocation.location import record_location
from ganeti.units.relocation.plan import LiveGuest, Plan
from ganeti.units.relocation.replace import replace_disks
from ganeti.units.relocation.steps import RelocationStep, Shrink, course, make_empty_disk
from ganeti.units.telling import showing
from ganeti.units.undo.disks import SetDiskRole, removals
from ganeti.units.undo.migrations import EndSource, ReconcileMigration
from ganeti.units.undo.step import Step

NOT_ACCEPTED = Incoming(address="", port=0)
NOT_SENT = MigrationResult(status="not sent", total_ms=0, downtime_ms=0, transferred=0)


async def migrate(ctx: UnitContext, plan: Plan, guest: LiveGuest) -> None:
    """Carry out a migration; after a failure the undo log finds the location of the guest."""
    is_changed = guest.shrinking is not None or plan.new_secondary is not None
    if plan.new_secondary is not None:
        await replace_disks(ctx, plan.new_secondary, early_release=False)
        present = ctx.snapshot.instances[InstanceUuid(plan.instance.uuid)]
        plan = replace(plan, instance=present, way=Way.SWAP, new_secondary=None)
    instance, source, target = plan.instance, plan.source, plan.target
    await _complete_copy(ctx, plan)
    async with course(ctx) as steps:
        if guest.shrinking is not None:
            await steps.take(Shrink(instance, source, guest.shrinking))
        # Afterwards its hardware is that of the configuration.
        info = await ask_info(ctx, plan) if is_changed else guest.info
        result = await steps.take(SendGuest(plan, info, guest.is_live))
        ctx.step(f"ending what is left on {source.name}")
        # The source closes its copy next: the guest writes on without it until it is synchronised.
        steps.commit(
            record_location(instance.uuid, target.uuid, is_closed=True, leaves_copies=True)
        )
    ctx.info(
        f"{instance.name} runs on {target.name}: {result.transferred // 1024} KiB in {result.total_ms} ms,"
        f" with a downtime of {result.downtime_ms} ms"
    )


async def _complete_copy(ctx: UnitContext, plan: Plan) -> None:
    """Return once the target has every write of a protected guest, which could not be handed over otherwise (D6)."""
    instance = plan.instance
    if not lacks_copy(ctx, instance):
        return
    ctx.step(f"waiting until {plan.target.name} has every write")
    await wait_for_sync(ctx, instance)
    if why := await await_current(ctx, instance):
        raise PrereqError(f"{instance.name} cannot be moved now: {why}", ErrorCode.WRONG_STATE)


async def ask_info(ctx: UnitContext, plan: Plan) -> MigrationInfo:
    """Return the source's present report about the guest."""
    asked = InstanceArgs(instance=spec_of(ctx, plan.instance))
    return await ctx.call(plan.source, MIGRATION_INFO, asked)


@dataclass(frozen=True)
class SendGuest(RelocationStep[MigrationResult]):
    """Send the guest and resume it at the target; after an error its location is unknown."""

    plan: Plan
    info: MigrationInfo
    is_live: bool

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        plan = self.plan
        return [
            ReconcileMigration(
                instance=plan.instance.uuid,
                source=plan.source.uuid,
                target=plan.target.uuid,
                copied=plan.way is Way.COPY,
                guest=spec_of(ctx, plan.instance),
            )
        ]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> MigrationResult:
        del undo
        return await _Sending(ctx, self.plan, self.info, self.is_live).run()

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        """Return the steps that remove everything from the source."""
        plan, spec = self.plan, spec_of(ctx, self.plan.instance)
        steps: list[Step] = []
        if plan.way is Way.COPY:
            steps += removals(NodeUuid(plan.source.uuid), spec)
        if is_mirrored(plan.instance):
            # DRBD refuses to connect the source before the target forbids it to write, so it connects again at the end.
            steps += [
                SetDiskRole(node=node.uuid, instance=spec.uuid)
                for node in (plan.source, plan.target)
            ]
        if plan.leaves_nvram(ctx.snapshot):
            steps.append(forget_nvram_step(ctx, plan.instance, plan.source))
        return [*steps, EndSource(node=plan.source.uuid, instance=spec)]


@dataclass
class _Sending:
    """The driver of the core while the job runs."""

    ctx: UnitContext
    plan: Plan
    info: MigrationInfo
    is_live: bool
    incoming: Incoming = NOT_ACCEPTED
    result: MigrationResult = NOT_SENT

    async def run(self) -> MigrationResult:
        core = Migration(Facts(self.plan.way is Way.COPY, is_mirrored(self.plan.instance)))
        instructions = core.handle(Event.BEGIN)
        while instructions:
            try:
                for instruction in instructions:
                    await self._carry_out(instruction)
            except GanetiError as err:
                is_unsent = isinstance(err, RpcFailed) and err.wire_error == UNREACHABLE
                if Instruction.TAKE_BACK in core.handle(
                    Event.NOT_SENT if is_unsent else Event.FAILED
                ):
                    await self._record(self.plan.source.uuid, self.plan.target.uuid)
                raise  # the recorded undo queries both ends
            instructions = core.handle(Event.DONE)
        return self.result

    async def _carry_out(self, instruction: Instruction) -> None:
        ctx, source, target = self.ctx, self.plan.source, self.plan.target
        match instruction:
            case Instruction.MARK:
                await self._record(source.uuid, target.uuid)
            case Instruction.OPEN_ON_BOTH:
                await self._open_on_both()
            case Instruction.MAKE_DISKS:
                ctx.step(f"creating its disks on {target.name}")
                spec = spec_of(ctx, self.plan.instance)
                for disk in spec.disks:
                    await make_empty_disk(ctx, target, spec.name, disk)
            case Instruction.ACCEPT:
                await self._accept()
            case Instruction.SEND:
                await self._send()
            case Instruction.HAND_OVER:
                ctx.step(f"resuming the guest at {target.name}")
                await self._record(target.uuid, source.uuid, handed_over=True)
            case Instruction.RESUME_TARGET:
                handed_over = ctx.snapshot.instances[self.plan.instance.uuid]
                there = spec_of(ctx, handed_over, target)
                await ctx.call(target, *finishing(MigrationEnd.RESUME_TARGET, there))
            case _:
                raise AssertionError(instruction)

    async def _record(self, primary: str, other: str, *, handed_over: bool = False) -> None:
        uuid = self.plan.instance.uuid
        # The guest has left the source when it is handed over, and has not begun at the target when it is taken back.
        change = record_location(
            uuid, primary, is_closed=True, migrating_to=other, handed_over=handed_over
        )
        await self.ctx.config.change(change)

    async def _open_on_both(self) -> None:
        self.ctx.step("letting both nodes write to its disks")
        for node in (
            self.plan.source,
            self.plan.target,
        ):  # the source permits it to the target as well
            await open_disks(self.ctx, self.plan.instance, node, DiskRole.BOTH)
        await wait_for_sync(self.ctx, self.plan.instance)

    async def _accept(self) -> None:
        target = self.plan.target
        self.ctx.step(f"preparing {target.name} to accept the instance")
        wanted = IncomingArgs(
            instance=spec_of(self.ctx, self.plan.instance, target),
            address=target.secondary_ip,
            info=self.info,
            copies_disks=self.plan.way is Way.COPY,
        )
        self.incoming = await self.ctx.call(target, MIGRATION_ACCEPT, wanted)

    async def _send(self) -> None:
        instance, source = self.plan.instance, self.plan.source
        what = "disks and the memory" if self.plan.way is Way.COPY else "memory"
        self.ctx.step(f"migrating the {what} of the guest")
        where = MigrateArgs(
            instance=spec_of(self.ctx, instance),
            address=self.incoming.address,
            port=self.incoming.port,
            live=self.is_live,
            disks_port=self.incoming.disks_port,
            certificate=self.incoming.certificate,
            bandwidth_mib_s=self.plan.bandwidth_mib_s,
        )
        async with showing(self.ctx, source, instance.name):
            self.result = await self.ctx.call(source, MIGRATION_RUN, where)
        if self.result.status != "completed":
            raise ExecError(
                f"the migration of {instance.name} ended as {self.result.status}: {self.result.error}"
            )
