"""The verdicts on the disks of instances, and waiting for connections that are being made."""

import asyncio
from collections.abc import Iterable

from ganeti.model.objects import Instance, InstanceUuid, Node
from ganeti.rpc.procedures.disks import DISKS_INFO, DiskInfo, DisksArgs
from ganeti.units.context import UnitContext
from ganeti.units.mirrors.ask import ask_nodes
from ganeti.units.mirrors.judge import Verdict

CONNECT_S = 20.0
"""The time allowed for a connection: DRBD tries every 10 s."""
LOOK_EVERY_S = 1.0


async def look(
    ctx: UnitContext, instances: Iterable[Instance]
) -> dict[InstanceUuid, list[Verdict]]:
    """Return the verdict on each disk of some instances; a silent node is a finding, not an error."""

    async def ask(node: Node, args: DisksArgs) -> list[DiskInfo]:
        return await ctx.call(node, DISKS_INFO, args)

    return await ask_nodes(ctx.snapshot, instances, ask)


async def verdicts_of(ctx: UnitContext, instance: Instance) -> list[Verdict]:
    """Return the verdict on each disk of one instance."""
    return (await look(ctx, [instance]))[InstanceUuid(instance.uuid)]


async def settled_verdicts(ctx: UnitContext, instance: Instance) -> list[Verdict]:
    """Return the verdicts after pending connections have had time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + CONNECT_S
    while True:
        verdicts = await verdicts_of(ctx, instance)
        if loop.time() >= end or not any(map(_may_connect, verdicts)):
            return verdicts
        await asyncio.sleep(LOOK_EVERY_S)


def _may_connect(verdict: Verdict) -> bool:
    """Return whether both ends of a disk try to connect."""
    copies = [part.info.sync for part in verdict.parts if part.info is not None]
    if len(copies) < len(verdict.parts):
        return False
    return all(one is not None and not one.connected and not one.dropped for one in copies)
