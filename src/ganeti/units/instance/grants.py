"""Grants of the right to write the disks of protected instances: all jobs change them here (D1, D2, D6, D8).

A job commits the grant before the node opens the disks; the node refuses an older one (`node/grants.py`). A protected
disk without a grant was last given to the primary node of its instance. A disk that once had a grant keeps it, also
while its instance is not protected, so that its generations continue.
"""

import dataclasses
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.config import Config
from ganeti.config.fill import instance_spec, recovery_of
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import DetachedDisk, Disk, Grant, Instance, InstanceUuid, NodeUuid
from ganeti.model.recovery import Recovery
from ganeti.recovery.grants import SHARED, GrantRefused, drop_peer, grant_writer, release

_ON_DISK = "C"
"""The protocol of DRBD with which a write is complete only when both copies have it on disk."""


def check_recovery(instance: Instance) -> None:
    """Refuse a failover policy of the instance itself that its disk template rules out."""
    template = DISK_TEMPLATES[instance.disk_template]
    if instance.beparams.get("recovery") != Recovery.FAILOVER:
        return
    if why := template.why_not_recovered:
        raise InputError(
            f"recovery=failover is not possible for {instance.name}: disk template {template.name} {why}; use"
            " recovery=restart",
            "beparams",
        )


def is_protected(view: View, instance: Instance) -> bool:
    """Return whether automatic recovery may start the instance on another node."""
    return recovery_of(view, instance) is Recovery.FAILOVER


def with_writer(
    draft: Draft,
    instance: Instance,
    node: NodeUuid,
    *,
    is_closed: bool,
    force: bool = False,
    again: bool = False,
) -> Instance:
    """Return the instance with `node` as the writer of its disks; PrereqError if another node may be writing.

    `is_closed`: the present writer's node has reported that the guest does not write. Otherwise the row of that node
    must say that it is fenced (D6), or `force` accepts the risk. If the instance is not protected, an administrator's
    offline mark is enough. `again`: a new generation also if `node` is the writer already.
    """
    protected = is_protected(draft, instance)
    if not (protected or is_closed or force) and node != instance.primary_node:
        check_has_ended(draft, instance)
    if not protected and not _has_grants(instance):
        return instance
    is_certain = is_closed or force or not protected
    is_mirrored = _is_mirrored(instance)
    grants = []
    # A guest without disks must not run twice either.
    for grant in _grants(instance) or [_first(instance)]:
        if grant.writer == node and not again:
            grants.append(grant)
            continue
        if is_mirrored and (force or not protected):
            # Without protection writes wait for no other copy, so none counts as current.
            grants.append(Grant(grant.generation + 1, frozenset({node}), node, draft.epoch))
            continue
        is_fenced = is_certain or _is_fenced(draft, instance, grant.writer)
        last = grant
        if is_mirrored and is_closed and grant.writer not in (None, node):
            last = release(grant, grant.writer, draft.epoch)  # keeps the copies that are current
        try:
            # On its own node a guest may write through the other copy, if that is connected.
            stays = is_mirrored and node == instance.primary_node
            granted = grant_writer(last, node, draft.epoch, is_fenced=is_fenced, through_peer=stays)
            grants.append(granted)
        except GrantRefused as err:
            raise _refusal(draft, instance, grant, node) from err
    return _with_grants(instance, grants)


def check_has_ended(view: View, instance: Instance) -> None:
    """Refuse to count the guest as ended because recovery has marked its node offline (D7).

    This mark promises only that the guests that recovery has fenced have ended. An administrator's mark promises it for
    all guests.
    """
    node = view.nodes[instance.primary_node]
    if not (node.offline and node.awaits_return) or _is_fenced(view, instance, node.uuid):
        return
    if _has_grants(instance) and all(one.writer != node.uuid for one in _grants(instance)):
        return
    raise PrereqError(
        f"{instance.name} may still run on {node.name}: automatic recovery has marked that node offline, but the node"
        f" is not known to be off (D7); if it is off, run: gnt-node fenced --confirm {node.name}; if it answers again,"
        " wait until it is back online",
        ErrorCode.WRONG_STATE,
    )


def record_writer(uuid: str, node: str, *, is_closed: bool, again: bool = False) -> Change:
    """Make `node` the writer of the disks of an instance, as `with_writer` does."""

    def change(draft: Draft) -> None:
        now = draft.instances[InstanceUuid(uuid)]
        new = with_writer(draft, now, NodeUuid(node), is_closed=is_closed, again=again)
        if new != now:
            draft.put(new)

    return change


async def grant_primary(config: Config, instance: Instance) -> Instance:
    """Grant the disks to the primary node in a new generation, before it opens them; return the instance with the grants.

    The instance may differ from the configuration in its parameters.
    """
    if not is_protected(config.snapshot, instance) and not _has_grants(instance):
        return instance
    await config.change(
        record_writer(instance.uuid, instance.primary_node, is_closed=False, again=True)
    )
    return replace(instance, disks=config.snapshot.instances[instance.uuid].disks)


async def grant_closed(config: Config, instance: Instance) -> Instance:
    """Grant mirrored disks that no guest writes to the primary node, before a job opens them; return the instance so."""
    if not _is_mirrored(instance) or all(
        disk.grant is None or disk.grant.writer is not None for disk in instance.disks
    ):
        return instance
    await config.change(record_writer(instance.uuid, instance.primary_node, is_closed=False))
    return with_present_grants(config, instance)


async def grant_alone(config: Config, instance: Instance, *, force: bool = False) -> Instance:
    """Let the primary node, whose copies have all data, write mirrored disks without the other copies (D5).

    Return the instance with the grants. PrereqError if its own copy is not current, unless `force` accepts the loss
    of what it lacks.
    """

    def change(draft: Draft) -> None:
        now = draft.instances[InstanceUuid(instance.uuid)]
        if (new := without_copies(draft, now, again=force)) != now:
            draft.put(new)

    if not _is_mirrored(instance) or not _has_grants(instance):
        return instance
    await config.change(change)
    return with_present_grants(config, instance)


def without_copies(draft: Draft, instance: Instance, *, again: bool = False) -> Instance:
    """Return the instance whose primary node alone has current copies of the disks that it writes.

    PrereqError if its own copy of one is not current. `again`: without this check, because the instance is not
    protected any more or an administrator accepts the loss, and in a new generation also if no other copy is current.
    """
    node = instance.primary_node
    if not _is_mirrored(instance):
        return instance
    grants = {
        disk.uuid: _alone(draft, instance, disk.grant, is_checked=not again)
        for disk in instance.disks
        if disk.grant is not None
        and disk.grant.writer == node
        and (again or disk.grant.current != {node})
    }
    return replace(
        instance,
        disks=tuple(
            replace(disk, grant=grants.get(disk.uuid, disk.grant)) for disk in instance.disks
        ),
    )


def _alone(draft: Draft, instance: Instance, grant: Grant, *, is_checked: bool) -> Grant:
    node, epoch = instance.primary_node, draft.epoch
    if not is_checked:
        return Grant(grant.generation + 1, frozenset({node}), node, epoch)
    try:
        return drop_peer(grant, node, grant.generation, epoch)
    except GrantRefused as err:
        raise _refusal(draft, instance, grant, node) from err


def record_empty(after: Instance, made: Collection[str]) -> Change:
    """Record an instance some of whose mirrored disks, by UUID, were made again: all their copies are empty."""

    def change(draft: Draft) -> None:
        put = draft.put(after)
        disks = tuple(
            replace(disk, grant=Grant(disk.grant.generation + 1, current, None, draft.epoch))
            if disk.grant is not None and disk.uuid in made
            else disk
            for disk in put.disks
        )
        if disks != put.disks and _is_mirrored(put):
            draft.put(replace(put, disks=disks))

    current = frozenset({after.primary_node})
    return change


def is_current(instance: Instance, node: NodeUuid) -> bool:
    """Return whether the copies of mirrored disks on a node are known to have every acknowledged write (D6)."""
    return all(disk.grant is not None and node in disk.grant.current for disk in instance.disks)


def why_alone(view: View, instance: Instance) -> str:
    """Return why no other node has all data of a running protected instance; '' if one has, or needs none."""
    is_up = instance.admin_state is AdminState.UP
    if not (is_up and _is_mirrored(instance) and is_protected(view, instance)):
        return ""
    others = instance.secondary_nodes
    if any(is_current(instance, uuid) for uuid in others):
        return _why_through_peer(view, instance)
    names = ", ".join(view.nodes[uuid].name for uuid in others)
    if any(disk.params.get("protocol") != _ON_DISK for disk in instance_spec(view, instance).disks):
        return (
            f"its copy on {names} may lack writes that it has confirmed: automatic failover needs the disk parameter"
            f" drbd:protocol=C; set it, then stop and start {instance.name}"
        )
    return (
        f"its copy on {names} does not have every write yet, so it cannot be started there: see"
        f" gnt-instance disk-status {instance.name}"
    )


def _why_through_peer(view: View, instance: Instance) -> str:
    """Return why a running guest writes only to the copies on its other node; '' if its own ones are current."""
    node = instance.primary_node
    failed = [at for at, disk in enumerate(instance.disks) if not _has(disk, node)]
    if not failed:
        return ""
    disks = f"disk{'s' if len(failed) > 1 else ''} {', '.join(map(str, failed))}"
    other = view.nodes[instance.secondary_nodes[0]].name
    return (
        f"its copy of {disks} on {view.nodes[node].name} failed or is being synchronised, so it writes to the copy on"
        f" {other} over the network; if gnt-instance disk-status {instance.name} shows no synchronisation, run:"
        f" gnt-instance replace-disks --on-primary {instance.name}"
    )


def _has(disk: Disk, node: NodeUuid) -> bool:
    return disk.grant is None or node in disk.grant.current


def with_present_grants(config: Config, instance: Instance) -> Instance:
    """Return the instance with the grants of the configuration; otherwise it may differ from that."""
    present = {disk.uuid: disk.grant for disk in config.snapshot.instances[instance.uuid].disks}
    disks = (replace(disk, grant=present.get(disk.uuid, disk.grant)) for disk in instance.disks)
    return replace(instance, disks=tuple(disks))


def released(draft: Draft, instance: Instance) -> Instance:
    """Return the instance after its primary node has closed its disks in order."""
    if not instance.disks or not (is_protected(draft, instance) or _has_grants(instance)):
        return instance
    node = instance.primary_node
    grants = [
        release(grant, node, draft.epoch) if grant.writer == node else grant
        for grant in _grants(instance)
    ]
    return _with_grants(instance, grants)


def closed(disk: Disk) -> Disk:
    """Return a disk that is closed on all nodes, and keeps the generation of its grant."""
    if disk.grant is None:
        return disk
    return replace(disk, grant=dataclasses.replace(disk.grant, writer=None))


def all_grants(view: View) -> dict[str, Grant]:
    """Return the grants of all disks by their UUIDs."""
    used = (disk for instance in view.instances.values() for disk in instance.disks)
    detached = (one.disk for one in view.table(DetachedDisk).values())
    return {disk.uuid: disk.grant for disk in (*used, *detached) if disk.grant is not None}


def _has_grants(instance: Instance) -> bool:
    return any(disk.grant is not None for disk in instance.disks)


def _is_mirrored(instance: Instance) -> bool:
    return DISK_TEMPLATES[instance.disk_template].mirrored and bool(instance.disks)


def _first(instance: Instance) -> Grant:
    """Return the grant of a disk that has none yet: its instance was not protected, or is new.

    A second copy may lack writes, because they have not waited for it so far.
    """
    copy = instance.primary_node if _is_mirrored(instance) else SHARED
    return Grant(0, frozenset({copy}), instance.primary_node)


def _grants(instance: Instance) -> list[Grant]:
    return [disk.grant or _first(instance) for disk in instance.disks]


def _with_grants(instance: Instance, grants: Sequence[Grant]) -> Instance:
    disks = [
        replace(disk, grant=grant) for disk, grant in zip(instance.disks, grants, strict=False)
    ]
    return replace(instance, disks=tuple(disks))


def _is_fenced(view: View, instance: Instance, writer: NodeUuid | None) -> bool:
    """Return whether a node certainly writes no more: its committed row says so, or it left the cluster (D7)."""
    node = view.nodes.get(writer or "")
    if node is None:
        return True
    row = node.recovery
    return row is not None and row.has_ended(instance.uuid, under_lease=instance.under_lease)


def _refusal(view: View, instance: Instance, grant: Grant, node: NodeUuid) -> PrereqError:
    if SHARED not in grant.current and node not in grant.current:
        there = view.nodes[node].name
        use = "failover --ignore-consistency"
        if node == instance.primary_node:
            use = f"repair-disks --keep={there}"
        kept = ", ".join(sorted(view.nodes[one].name for one in grant.current if one in view.nodes))
        return PrereqError(
            f"{instance.name} is protected (recovery=failover), and its copy on {there} lacks what was written since"
            f" generation {grant.generation} began; the copy on {kept or 'a node that has left'} has everything (D6)."
            " To use it all the same, and lose these writes:"
            f" gnt-instance {use} {instance.name}",
            ErrorCode.WRONG_STATE,
        )
    name = view.nodes[grant.writer].name if grant.writer else "no node"
    return PrereqError(
        f"{instance.name} is protected (recovery=failover), and {name} may still write its disks (generation"
        f" {grant.generation}): the node is not known to be fenced (D6); make sure that it is off, then run:"
        f" gnt-node fenced --confirm {name}",
        ErrorCode.WRONG_STATE,
    )
