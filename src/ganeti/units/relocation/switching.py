"""The mark in the configuration while a running guest changes its disks, and its end.

Between the mark and its end only the node of the guest knows which disks have the last writes.
"""

from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.objects import DiskSwitch, Instance, InstanceUuid
from ganeti.rpc.procedures.disk_moves import DISK_MOVE_END, EndDiskMoveArgs
from ganeti.units.services import Services


def mark_switching(after: Instance, token: str) -> Change:
    """Record that the guest may use the disks of `after` instead of its own."""

    def change(draft: Draft) -> None:
        now = draft.instances[after.uuid]
        switch = DiskSwitch(
            token=token,
            disk_template=after.disk_template,
            disks=after.disks,
            secondary_nodes=after.secondary_nodes,
        )
        draft.put(replace(now, switching=switch, migrating_to=now.primary_node))

    return change


def record_switched(uuid: InstanceUuid, token: str, *, is_moved: bool) -> Change:
    """Record which disks the guest uses, and end the mark; no-op if that is recorded."""

    def change(draft: Draft) -> None:
        now = draft.instances.get(uuid)
        if now is None or now.switching is None or now.switching.token != token:
            return
        switch, settled = now.switching, replace(now, switching=None, migrating_to=None)
        if is_moved:
            settled = replace(
                settled,
                disk_template=switch.disk_template,
                disks=switch.disks,
                secondary_nodes=switch.secondary_nodes,
            )
        draft.put(settled)

    return change


async def settle_disks(services: Services, key: str, instance_uuid: str) -> bool | None:
    """Query the node which disks have the last writes, and record them; return whether they are the new ones.

    None if the configuration has no mark.
    """
    snapshot, uuid = services.config.snapshot, InstanceUuid(instance_uuid)
    instance = snapshot.instances.get(uuid)
    if instance is None or instance.switching is None:
        return None
    token = instance.switching.token
    args = EndDiskMoveArgs(instance=instance_spec(snapshot, instance), token=token)
    node = snapshot.nodes[instance.primary_node]
    found = await services.rpc.call(node, DISK_MOVE_END, args, key=f"{key}/which")
    await services.config.change(record_switched(uuid, token, is_moved=found.is_moved))
    return found.is_moved
