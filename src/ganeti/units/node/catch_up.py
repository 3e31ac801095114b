"""The check whether a node that was away may take part again (F9)."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.disks import DISK_GRANTS, GrantsArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import VERSION, HypervisorsArgs
from ganeti.rpc.procedures.instances import (
    INSTANCE_SHUTDOWN,
    INSTANCES_INFO,
    RunningInstance,
    ShutdownArgs,
)
from ganeti.rpc.procedures.mastership import REGISTER_READ
from ganeti.units.context import UnitContext
from ganeti.units.instance.grants import all_grants

SHOWN = 5


async def check_can_return(ctx: UnitContext, node: Node, *, ends_misplaced: bool = False) -> None:
    """Refuse a node of another cluster, one that still works for an earlier master, or one with wrong guests.

    With `ends_misplaced`, guests of instances that have moved to other nodes are accepted: `end_misplaced` follows.
    """
    present = replace(node, offline=False)
    hypervisors = list(ctx.snapshot.cluster.enabled_hypervisors)
    try:
        version = await ctx.call(present, VERSION, Nothing())
        answer = await ctx.call(present, REGISTER_READ, Nothing())
        guests = await ctx.call(present, INSTANCES_INFO, HypervisorsArgs(hypervisors=hypervisors))
    except RpcError as err:
        raise PrereqError(
            f"node {node.name} cannot be brought back: it does not answer ({err.reason});"
            " start its node daemon first",
            ErrorCode.ENVIRONMENT,
        ) from err
    if version.cluster_uuid != ctx.snapshot.cluster.uuid:
        raise PrereqError(
            f"node {node.name} cannot be brought back: it is in another cluster"
            f" ({version.cluster_uuid or 'none'}); add it again with gnt-node add --readd",
            ErrorCode.WRONG_STATE,
        )
    older_calls = answer.vote.voter.older_calls if answer.vote else ()
    if older_calls:
        raise PrereqError(
            f"node {node.name} cannot be brought back yet: it still runs"
            f" {_shown(list(older_calls))} for an earlier master; try again when that has ended",
            ErrorCode.TEMP_NO_RESOURCES,
        )
    if ends_misplaced:
        guests = [one for one in guests if one.uuid not in ctx.snapshot.instances]
    if wrong := misplaced(ctx.snapshot, node, guests):
        raise PrereqError(
            f"node {node.name} cannot be brought back: it runs {_shown(wrong)}, which must not run there;"
            " end these guests on it first",
            ErrorCode.WRONG_STATE,
        )


def misplaced(snapshot: Snapshot, node: Node, guests: list[RunningInstance]) -> list[str]:
    """Return names of the guests on `node` that belong to another node, or to none."""
    found = []
    for guest in guests:
        instance = snapshot.instances.get(guest.uuid)
        if instance is None or node.uuid not in (instance.primary_node, instance.migrating_to):
            found.append(guest.name)
    return sorted(found)


async def end_misplaced(ctx: UnitContext, node: Node) -> None:
    """Kill the guests on a returning node whose instances are on other nodes now, before their disks are touched (D9).

    ExecError if one survives.
    """
    await ctx.run.started()
    present = replace(node, offline=False)
    hypervisors = list(ctx.snapshot.cluster.enabled_hypervisors)
    try:
        guests = await ctx.call(present, INSTANCES_INFO, HypervisorsArgs(hypervisors=hypervisors))
        for guest in guests:
            instance = ctx.snapshot.instances.get(guest.uuid)
            if instance is not None and misplaced(ctx.snapshot, node, [guest]):
                ctx.warn(f"killing the guest of {instance.name} on {node.name}: it has moved away")
                args = ShutdownArgs(
                    instance=instance_spec(ctx.snapshot, instance, NodeUuid(node.uuid)),
                    timeout_s=0.0,
                )
                await ctx.call(present, INSTANCE_SHUTDOWN, args)
    except RpcError as err:
        raise ExecError(f"node {node.name} stays offline: {err}") from err


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


async def bring_up_to_date(ctx: UnitContext, node: Node) -> None:
    """Send a returning node the latest facts; ExecError if it does not accept them."""
    await ctx.run.started()
    present = replace(node, offline=False)
    try:
        # Its server of the state was removed while it was away: a new member begins without the old data.
        await ctx.services.candidates.enforce(replace(present, master_candidate=False))
        await ctx.services.ssconf.push_now(present)
        grants = all_grants(ctx.snapshot)
        if grants:
            # Until now a call under a grant from before it was away could still start a guest there.
            await ctx.call(present, DISK_GRANTS, GrantsArgs(grants=grants))
    except GanetiError as err:
        raise ExecError(
            f"node {node.name} stays unchanged: it does not accept the cluster's facts ({err.message})"
        ) from err


async def tell_of_return(ctx: UnitContext, node: Node) -> None:
    """Notify a node that it is online, after the configuration says so: before that it starts no guest (F29).

    The distributor would notify it within about a second, but the next job may start a guest at once.
    """
    try:
        await ctx.services.ssconf.push_now(node)
    except GanetiError as err:
        ctx.warn(
            f"{node.name} has not been notified yet that it is online, and starts no instance until then:"
            f" {err.message}"
        )
