"""The change of configuration that records a guest's location (G5, F20)."""

from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.layouts.places import relocated
from ganeti.model.objects import InstanceUuid, NodeUuid
from ganeti.units.instance.grants import with_writer, without_copies


def record_location(
    uuid: str,
    primary: str,
    *,
    is_closed: bool,
    force: bool = False,
    migrating_to: str | None = None,
    handed_over: bool = False,
    leaves_copies: bool = False,
) -> Change:
    """Make `primary` the node of an instance, and grant it the disks in the same transaction.

    `is_closed` and `force` are those of `with_writer`, which refuses while another node may be writing.
    With `migrating_to` its guest may be on that node as well, and no job may start it. Before a migration that node
    is the target. Once the guest is handed over, the target is the primary node, and the mark names the source until
    it is known whether the target has resumed the guest. With `leaves_copies`, only the copies on `primary` count as
    current from now on. With `force`, an unfinished move of the disks ends with the old ones.
    """

    def change(draft: Draft) -> None:
        instance = draft.instances[InstanceUuid(uuid)]
        mark = NodeUuid(migrating_to) if migrating_to else None
        granted = with_writer(draft, instance, NodeUuid(primary), is_closed=is_closed, force=force)
        there = relocated(granted, NodeUuid(primary))
        if leaves_copies:
            there = without_copies(draft, there)
        switching = None if force else there.switching
        known = replace(there, migrating_to=mark, handed_over=handed_over, switching=switching)
        if known != instance:
            draft.put(known)

    return change
