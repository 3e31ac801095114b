"""The storage units that a cluster and its disks use. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from ganeti.config.fill import filled_diskparams, placed_params
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES, StorageUnit, storage_facts
from ganeti.model.objects import Cluster, Disk, NodeUuid
from ganeti.rpc.procedures.host import StorageSpace


def storage_unit(
    cluster: Cluster, template: str, own: Mapping[str, Any] | None = None
) -> StorageUnit | None:
    """Return the storage unit for disks of a template.

    None if they need no space, or the cluster has no unit for them.

    `own` are the parameters of one disk, which may name another unit.
    """
    row = DISK_TEMPLATES.get(template)
    facts = storage_facts(row) if row is not None else None
    if row is None or facts is None:
        return None
    if row.storage is None:
        return storage_unit(cluster, row.lower, {facts.pool: ""} if facts.pool else None)
    params = filled_diskparams(cluster, None, template, own)
    key = params.get(facts.param, "")
    if not key and facts.field:
        key = getattr(cluster, facts.field)
    if key and facts.pool and (pool := params.get(facts.pool)):
        return StorageUnit(kind=facts.pool_kind, key=f"{key}/{pool}")
    return StorageUnit(kind=facts.kind, key=key) if key else None


def disk_unit(cluster: Cluster, layer: Disk) -> StorageUnit | None:
    """Return the storage unit of one layer of a disk, from its own parameters; None if it uses none.

    A file created elsewhere (by a merge or an import) is in the directory above its instance's.
    """
    row = TEMPLATES.get(layer.template)
    if row is None or row.storage is None:
        return None
    unit = storage_unit(cluster, layer.template, placed_params(layer))
    if not row.in_files or not layer.logical_id:
        return unit
    name = str(layer.logical_id[-1])
    if unit is not None and name.startswith(f"{unit.key}/"):  # nearly all, at a tenth of the cost
        return unit
    path = PurePosixPath(name)
    if unit is not None and path.is_relative_to(unit.key):
        return unit
    return StorageUnit(kind=row.storage.kind, key=str(path.parent.parent))


def stored_name(layer: Disk, node: NodeUuid) -> str:
    """Return a layer's name in its storage unit on a node: the path of a file, the name of a volume."""
    part = layer.part(node)
    return str(part[-1]) if part else ""


def stored_snapshot(layer: Disk, node: NodeUuid, snapshot: str) -> str:
    """Return the name of a layer's snapshot in its storage unit on a node."""
    return (
        f"{stored_name(layer, node)}.{snapshot}" if TEMPLATES[layer.template].in_files else snapshot
    )


def storage_units(cluster: Cluster, disks: Iterable[Disk] = ()) -> list[StorageUnit]:
    """Return every unit to ask nodes about, once each: of enabled templates, and those that disks name."""
    found = [storage_unit(cluster, name) for name in cluster.enabled_disk_templates]
    for disk in disks:
        found += [disk_unit(cluster, layer) for layer in disk.layers()]
    return list(dict.fromkeys(unit for unit in found if unit is not None))


def disk_usage(cluster: Cluster, disks: Iterable[Disk]) -> int:
    """Return the MiB that disks use on each node of their instance, metadata included (S170)."""
    return sum(PLANNERS[disk.template].space_mib(disk, cluster) for disk in disks)


def space_needed(cluster: Cluster, disks: Iterable[Disk]) -> Mapping[StorageUnit, int]:
    """Return the MiB that disks use on each node that holds a part of them, by storage unit."""
    needs: Counter[StorageUnit] = Counter()
    for layer in (layer for disk in disks for layer in disk.layers()):
        unit = disk_unit(cluster, layer)
        if unit is not None:
            needs[unit] += layer.size
    return needs


def with_overcommit(cluster: Cluster, space: StorageSpace) -> StorageSpace:
    """Return the space of a unit with what the cluster allows beyond the size of a thin pool."""
    for row in DISK_TEMPLATES.values():
        facts = row.storage
        if facts is not None and facts.pool_kind == space.unit.kind and facts.pool_kind:
            percent = filled_diskparams(cluster, None, row.name)[facts.pool_percent]
            free = space.total * percent // 100 - space.promised
            return replace(space, free=max(0, free))
    return space
