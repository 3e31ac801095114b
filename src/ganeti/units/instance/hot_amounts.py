"""Processors and memory of a running guest: what it gets at once, and the change with its undo."""

from collections.abc import Iterator
from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.devices import (
    HOTPLUG_LIMITS,
    INSTANCE_MEMORY,
    INSTANCE_VCPUS,
    GuestLimits,
    MemoryArgs,
    VcpusArgs,
)
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.undo.guests import SetMemory, SetVcpus

VCPUS, MEMORY, MAXMEM, MINMEM = "be/vcpus", "be/memory", "be/maxmem", "be/minmem"
"""The labels of these changes."""


@dataclass(frozen=True, kw_only=True)
class HotAmounts:
    """The present and the requested amount of what changes at once."""

    vcpus: tuple[int, int] | None = None
    memory: tuple[int, int] | None = None
    """In MiB."""

    def __bool__(self) -> bool:
        return self != NOTHING

    def reported(self) -> Iterator[tuple[str, int]]:
        """Give name and value of each change, for the result of the job."""
        if self.vcpus is not None:
            yield "runtime_vcpus", self.vcpus[1]
        if self.memory is not None:
            yield "runtime_memory", self.memory[1]


NOTHING = HotAmounts()


def wanted_amounts(
    ctx: UnitContext, after: Instance, state: RunningInstance | None, labels: set[str]
) -> HotAmounts:
    """Return what the running guest lacks, or has too much of; `labels` are those of the requested changes."""
    if state is None:
        return NOTHING
    filled = filled_beparams(ctx.snapshot, after)
    vcpus = filled["vcpus"] if VCPUS in labels else state.vcpus
    memory = state.memory
    if labels & {MEMORY, MAXMEM}:
        memory = filled["maxmem"]
    elif MINMEM in labels:
        memory = max(memory, filled["minmem"])
    return HotAmounts(
        vcpus=_change(state.vcpus, vcpus),
        memory=_change(state.memory, memory),
    )


def _change(present: int, wanted: int) -> tuple[int, int] | None:
    return None if wanted == present else (present, wanted)


def settled(wanted: HotAmounts, possible: HotAmounts) -> set[str]:
    """Return the labels of changes that do not wait for the next start."""
    labels = {VCPUS} if wanted.vcpus == possible.vcpus else set()
    return labels | ({MEMORY, MAXMEM} if wanted.memory == possible.memory else set())


async def possible_amounts(
    ctx: UnitContext, node: Node, instance: Instance, wanted: HotAmounts, *, must: bool
) -> HotAmounts:
    """Return the part that the guest can get without a restart.

    PrereqError if that is not all and `must` is set. Without it no memory is taken from the guest.
    """
    if not wanted:
        return NOTHING
    limits = await ctx.call(node, HOTPLUG_LIMITS, InstanceArgs(instance=spec_of(ctx, instance)))
    problems = _problems(instance, wanted, limits)
    if problems and must:
        text = f"{problems[0]}; change it at its next start (--no-hotplug)"
        raise PrereqError(text, ErrorCode.WRONG_STATE)
    for problem in problems:
        ctx.info(problem)
    return HotAmounts(
        vcpus=wanted.vcpus if _has_vcpus(limits, wanted) else None,
        memory=wanted.memory
        if _has_memory(limits, wanted) and (must or not _shrinks(wanted))
        else None,
    )


def _problems(instance: Instance, wanted: HotAmounts, limits: GuestLimits) -> list[str]:
    found = []
    who = f"the running guest of {instance.name}"
    if wanted.vcpus is not None and not _has_vcpus(limits, wanted):
        found.append(
            f"{who} can have {limits.least_vcpus} to {limits.most_vcpus} processors, not {wanted.vcpus[1]}: it keeps"
            " those of its start, and gets at most max_vcpus"
        )
    if wanted.memory is not None and not _has_memory(limits, wanted):
        found.append(
            f"{who} can have at most {limits.most_memory} MiB of memory, not {wanted.memory[1]}: it gets at most"
            " max_memory, as it was at its start"
        )
    return found


def _has_vcpus(limits: GuestLimits, wanted: HotAmounts) -> bool:
    return wanted.vcpus is None or limits.least_vcpus <= wanted.vcpus[1] <= limits.most_vcpus


def _has_memory(limits: GuestLimits, wanted: HotAmounts) -> bool:
    return wanted.memory is None or wanted.memory[1] <= limits.most_memory


def _shrinks(wanted: HotAmounts) -> bool:
    return wanted.memory is not None and wanted.memory[1] < wanted.memory[0]


async def change_amounts(
    ctx: UnitContext, undo: UndoLog, node: Node, instance: Instance, amounts: HotAmounts
) -> None:
    """Change the running guest, with the undo of each step recorded before it."""
    spec = spec_of(ctx, instance)
    if amounts.vcpus is not None:
        present, wanted = amounts.vcpus
        ctx.step(f"changing the processors of the running guest from {present} to {wanted}")
        back = VcpusArgs(instance=spec, vcpus=present)
        await undo.push(SetVcpus(node=node.uuid, change=back))
        await ctx.call(node, INSTANCE_VCPUS, VcpusArgs(instance=spec, vcpus=wanted))
    if amounts.memory is not None:
        present, wanted = amounts.memory
        ctx.step(f"changing the memory of the running guest from {present} to {wanted} MiB")
        restored = MemoryArgs(instance=spec, memory=present)
        await undo.push(SetMemory(node=node.uuid, change=restored))
        result = await ctx.call(node, INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=wanted))
        if result.memory != wanted:
            ctx.warn(f"the guest uses {result.memory} MiB at present; it may still follow")
