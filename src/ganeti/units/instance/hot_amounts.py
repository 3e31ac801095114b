"""Processors of a running guest: what it gets at once, and the change with its undo."""

from collections.abc import Iterator
from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.devices import HOTPLUG_LIMITS, INSTANCE_VCPUS, VcpusArgs
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.undo.guests import SetVcpus

VCPUS = "be/vcpus"
"""The label of this change."""


@dataclass(frozen=True, kw_only=True)
class HotAmounts:
    """The present and the requested amount of what changes at once."""

    vcpus: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return self.vcpus is not None

    def reported(self) -> Iterator[tuple[str, int]]:
        """Give name and value of each change, for the result of the job."""
        if self.vcpus is not None:
            yield "runtime_vcpus", self.vcpus[1]


NOTHING = HotAmounts()


def wanted_amounts(
    ctx: UnitContext, after: Instance, state: RunningInstance | None, labels: set[str]
) -> HotAmounts:
    """Return what the running guest lacks, or has too much of; `labels` are those of the requested changes."""
    if state is None or VCPUS not in labels:
        return NOTHING
    wanted = filled_beparams(ctx.snapshot, after)["vcpus"]
    return HotAmounts(vcpus=None if wanted == state.vcpus else (state.vcpus, wanted))


def settled(wanted: HotAmounts, possible: HotAmounts) -> set[str]:
    """Return the labels of changes that do not wait for the next start."""
    return {VCPUS} if wanted == possible else set()


async def possible_amounts(
    ctx: UnitContext, node: Node, instance: Instance, wanted: HotAmounts, *, must: bool
) -> HotAmounts:
    """Return the part that the guest can get without a restart; PrereqError if it is not all and `must` is set."""
    if wanted.vcpus is None:
        return NOTHING
    limits = await ctx.call(node, HOTPLUG_LIMITS, InstanceArgs(instance=spec_of(ctx, instance)))
    if limits.least_vcpus <= wanted.vcpus[1] <= limits.most_vcpus:
        return wanted
    text = (
        f"the running guest of {instance.name} can have {limits.least_vcpus} to {limits.most_vcpus} processors,"
        f" not {wanted.vcpus[1]}: it keeps those of its start, and gets at most max_vcpus"
    )
    if must:
        raise PrereqError(
            f"{text}; change it at its next start (--no-hotplug)", ErrorCode.WRONG_STATE
        )
    ctx.info(text)
    return NOTHING


async def change_amounts(
    ctx: UnitContext, undo: UndoLog, node: Node, instance: Instance, amounts: HotAmounts
) -> None:
    """Change the running guest, with the undo recorded before."""
    if amounts.vcpus is None:
        return
    present, wanted = amounts.vcpus
    spec = spec_of(ctx, instance)
    ctx.step(f"changing the processors of the running guest from {present} to {wanted}")
    back = VcpusArgs(instance=spec, vcpus=present)
    await undo.push(SetVcpus(node=node.uuid, change=back))
    await ctx.call(node, INSTANCE_VCPUS, VcpusArgs(instance=spec, vcpus=wanted))
