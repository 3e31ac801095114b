"""Making the configuration follow what is true after a migration of unknown outcome (G5, F20)."""

from msgspec.structs import replace

from ganeti.base.errors import ExecError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures import (
    INSTANCE_INFO,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    FinishMigrationArgs,
    InstanceArgs,
    RunningInstance,
)
from ganeti.units.services import Services


def decide_owner(source: RunningInstance | None, target: RunningInstance | None) -> str:
    """Which end has the guest: `source`, `target`, `nowhere` or `both`.

    A source whose guest was sent away is `postmigrate`, a target that still waits is `incoming`;
    neither of them runs the guest.
    """
    on_source = source is not None and source.state not in ("postmigrate", "incoming")
    on_target = target is not None and target.state not in ("postmigrate", "incoming")
    if on_source and on_target:
        return "both"
    if on_source:
        return "source"
    if on_target:
        return "target"
    # Sent, but not resumed at the other end: the guest's state is in the target, or was lost with it.
    if target is not None and source is not None and source.state == "postmigrate":
        return "target"
    return "source" if source is not None else "nowhere"


def move_primary(uuid: InstanceUuid, node: NodeUuid) -> Change:
    """The change of configuration that makes `node` the instance's primary node."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        if instance.primary_node != node:
            draft.put(replace(instance, primary_node=node))

    return change


async def settle_migration(
    services: Services, key: str, uuid: InstanceUuid, source_uuid: NodeUuid, target_uuid: NodeUuid
) -> str:
    """Ask both nodes, make the configuration say which of them has the guest, and clean the other one up.

    Returns the name of the node that has it, '' if none has. Raises ExecError if a node does not
    answer or both run it: then nothing was changed.
    """
    snapshot = services.config.snapshot
    instance = snapshot.instances.get(uuid)
    if instance is None:
        return ""
    source, target = snapshot.nodes[source_uuid], snapshot.nodes[target_uuid]
    found = [await _ask(services, instance, node) for node in (source, target)]
    owner = decide_owner(*found)
    if owner == "both":
        raise ExecError(
            f"{instance.name} runs on {source.name} and on {target.name}; decide which copy to keep and end the other"
            f" one there, then run: gnt-instance migrate --cleanup {instance.name}"
        )
    if owner == "nowhere":
        return ""
    to_target = owner == "target"
    if to_target:
        await services.config.change(move_primary(uuid, target_uuid))
    spec = instance_spec(services.config.snapshot, instance)
    args = FinishMigrationArgs(instance=spec, success=to_target)
    # In this order for both outcomes: a target that still waits must be gone before the source may run on.
    for node, procedure in ((target, MIGRATION_FINISH_TARGET), (source, MIGRATION_FINISH_SOURCE)):
        await services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")
    return target.name if to_target else source.name


async def _ask(services: Services, instance: Instance, node: Node) -> RunningInstance | None:
    args = InstanceArgs(instance=instance_spec(services.config.snapshot, instance))
    try:
        answer: RunningInstance | None = await services.rpc.call(node, INSTANCE_INFO, args)
    except RpcError as err:
        raise ExecError(
            f"cannot tell where {instance.name} runs: {err}; when the node answers again, run:"
            f" gnt-instance migrate --cleanup {instance.name}"
        ) from err
    return answer
