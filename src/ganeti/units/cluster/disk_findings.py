"""Findings about disks that are missing, too small or orphaned; pure."""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_unit, stored_name, stored_snapshot
from ganeti.layouts.places import holders
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES, StorageUnit
from ganeti.model.objects import DetachedDisk, Disk, Instance, Node, NodeUuid
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.units.cluster.findings import Finding

Stored = Mapping[NodeUuid, list[StoredDisk] | RpcError]
"""The content of the storage units of each node that was queried."""
VolumeKey = tuple[StorageUnit, str]
"""A storage unit and a name in it."""


@dataclass(frozen=True)
class Listing:
    """The content of storage: `local` by node, `shared` as one node sees it (None if it is unknown)."""

    local: Stored
    shared: list[StoredDisk] | None

    def sizes(self, node: NodeUuid | None) -> dict[VolumeKey, int] | None:
        """Return volume key -> MiB of everything in a node's own storage, or in the shared one; None if unknown."""
        found = self.shared if node is None else self.local.get(node)
        if found is None or isinstance(found, RpcError):
            return None
        return {(one.unit, one.name): one.size for one in found}


@dataclass(frozen=True)
class KnownVolumes:
    """The volumes that a configuration names, and the names of those that are files."""

    volumes: frozenset[VolumeKey]
    files: frozenset[str]

    @classmethod
    def of(cls, volumes: Iterable[VolumeKey]) -> "KnownVolumes":
        """Return these volumes."""
        all_of_them = frozenset(volumes)
        return cls(all_of_them, frozenset(name for unit, name in all_of_them if _is_file(unit)))


def _is_file(unit: StorageUnit) -> bool:
    return unit.kind in _IN_FILES


_IN_FILES = {row.storage.kind for row in TEMPLATES.values() if row.in_files and row.storage}


def missing_findings(
    snapshot: Snapshot, instances: Iterable[Instance], listing: Listing
) -> Iterator[Finding]:
    """Yield disks, or parts of them, that the configuration has and the node lacks."""
    sizes = functools.cache(listing.sizes)
    for instance in instances:
        if instance.disk_template not in DISK_TEMPLATES:
            continue
        is_shared = DISK_TEMPLATES[instance.disk_template].shared
        for uuid in holders(instance):
            there = sizes(None if is_shared else uuid)
            if there is not None:
                yield from _missing(snapshot, instance, uuid, there)


def _missing(
    snapshot: Snapshot, instance: Instance, node: NodeUuid, there: Mapping[VolumeKey, int]
) -> Iterator[Finding]:
    where = snapshot.nodes[node].name
    for number, disk in enumerate(instance.disks):
        for layer in disk.layers():
            unit = disk_unit(snapshot.cluster, layer)
            if unit is None:
                continue
            name = stored_name(layer, node)
            found = there.get((unit, name))
            if found is None:
                verb = (
                    "replace-disks -a"
                    if DISK_TEMPLATES[instance.disk_template].mirrored
                    else "recreate-disks"
                )
                text = (
                    f"disk/{number} is missing on {where}: {name};"
                    f" run: gnt-instance {verb} {instance.name}"
                )
                yield Finding("EINSTANCEMISSINGDISK", "instance", instance.name, text)
            elif found < layer.size:
                text = f"disk/{number} has {found} MiB instead of {layer.size} MiB: {name}"
                yield Finding("EINSTANCEFAULTYDISK", "instance", instance.name, text)
            for snapshot_name, stored in _snapshots_of(instance, layer):
                if (unit, stored) not in there:
                    text = (
                        f"snapshot {snapshot_name} of disk/{number} is missing on {where}: {stored}; run:"
                        f" gnt-instance snapshot remove {instance.name} {snapshot_name}"
                    )
                    yield Finding("EINSTANCEMISSINGDISK", "instance", instance.name, text)
    yield from _missing_memory(snapshot, instance, node, there)


def _missing_memory(
    snapshot: Snapshot, instance: Instance, node: NodeUuid, there: Mapping[VolumeKey, int]
) -> Iterator[Finding]:
    where = snapshot.nodes[node].name
    for had in instance.snapshots:
        memory = had.memory
        unit = None if memory is None else disk_unit(snapshot.cluster, memory.disk)
        if memory is None or unit is None:
            continue
        name = stored_name(memory.disk, node)
        if (unit, name) not in there:
            text = (
                f"the memory of snapshot {had.name} is missing on {where}: {name}; roll back to it with"
                f" --no-memory, or run: gnt-instance snapshot remove {instance.name} {had.name}"
            )
            yield Finding("EINSTANCEMISSINGDISK", "instance", instance.name, text)


def _snapshots_of(instance: Instance, disk: Disk) -> Iterator[tuple[str, str]]:
    """Yield the name of each snapshot with a disk, and its name in the storage, if the storage lists snapshots."""
    if DISK_TEMPLATES[instance.disk_template].snapshots_take_space:
        node = instance.primary_node
        for had in instance.snapshots:
            for one in had.disks:
                if one.disk == disk.uuid:
                    yield had.name, stored_snapshot(disk, node, one.name)


def known_places(snapshots: Iterable[Snapshot]) -> KnownVolumes:
    """Return the volumes of all disks in some configurations."""
    snapshots = list(snapshots)
    disks = {
        (unit, stored_name(layer, node))
        for snapshot in snapshots
        for disk, nodes in snapshot.all_disks()
        for layer in disk.layers()
        if (unit := disk_unit(snapshot.cluster, layer)) is not None
        for node in nodes or (NodeUuid(""),)
    }
    return KnownVolumes.of(
        disks
        | {
            (unit, stored)
            for snapshot in snapshots
            for instance in snapshot.instances.values()
            for disk in instance.disks
            for _name, stored in _snapshots_of(instance, disk)
            if (unit := disk_unit(snapshot.cluster, disk)) is not None
        }
    )


def detached_findings(snapshot: Snapshot, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Yield detached disks at the first of their nodes; disks that all nodes see at the master."""
    names = {node.uuid: node.name for node in nodes}
    for detached in snapshot.table(DetachedDisk).values():
        node = (detached.nodes or (snapshot.cluster.master_node,))[0]
        if node not in names:
            continue
        text = (
            f"{detached.what} ({detached.disk.template}, {detached.disk.size} MiB, detached from"
            f" {detached.last_instance}) belongs to no instance; attach it: gnt-instance modify"
            f" --disk attach:uuid={detached.uuid}"
        )
        yield Finding("ENODEORPHANLV", "node", names[node], text, is_error=False)


def unknown_disks(
    node_name: str,
    disks: Iterable[StoredDisk],
    known: KnownVolumes,
    coming: Collection[str],
    reserved: Sequence[str] = (),
) -> Iterator[Finding]:
    """Yield volumes of no instance, except those of instances in creation (`coming` has their names) and reserved ones.

    Names of files include the instance's name; those of volumes do not. So orphaned volumes are not reported while
    instances are being created.
    """
    patterns = [re.compile(pattern) for pattern in reserved]
    for disk in disks:
        is_file, name = _is_file(disk.unit), disk.name
        # One directory may contain another, so that both list the file.
        if (disk.unit, name) in known.volumes or (is_file and name in known.files):
            continue
        if is_file and any(part in coming for part in name.split("/")):
            continue
        if not is_file:
            name = f"{disk.unit.key}/{name}"
            if coming or any(pattern.match(name) for pattern in patterns):
                continue
        what = "file" if is_file else "volume"
        text = f"the {what} {name} ({disk.size} MiB) belongs to no instance"
        yield Finding("ENODEORPHANLV", "node", node_name, text, is_error=False)
