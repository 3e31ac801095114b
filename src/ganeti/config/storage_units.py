"""Which storage units a cluster and its disks use: pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ganeti.config.fill import filled_diskparams
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES, StorageUnit, storage_facts
from ganeti.model.objects import Cluster, Disk


def storage_unit(
    cluster: Cluster, template: str, own: Mapping[str, Any] | None = None
) -> StorageUnit | None:
    """Where the cluster keeps disks of a template; None if they need no space, or it has no place for them.

    `own` are the parameters of one disk, which may name another unit.
    """
    row = DISK_TEMPLATES.get(template)
    facts = storage_facts(row) if row is not None else None
    if row is None or facts is None:
        return None
    if row.storage is None:
        return storage_unit(cluster, row.lower)
    if facts.field:
        key = getattr(cluster, facts.field)
    else:
        key = filled_diskparams(cluster, None, template, own).get(facts.param, "")
    return StorageUnit(kind=facts.kind, key=key) if key else None


def storage_units(cluster: Cluster) -> list[StorageUnit]:
    """Every unit about which nodes are asked, each once."""
    found = (storage_unit(cluster, name) for name in DISK_TEMPLATES)
    return list(dict.fromkeys(unit for unit in found if unit is not None))


def space_needed(cluster: Cluster, disks: Iterable[Disk]) -> Mapping[StorageUnit, int]:
    """MiB that disks take on each node that holds a part of them, by storage unit."""
    needs: Counter[StorageUnit] = Counter()
    for layer in (layer for disk in disks for layer in disk.layers()):
        if TEMPLATES[layer.template].storage is not None:
            unit = storage_unit(cluster, layer.template, layer.params)
            if unit is not None:
                needs[unit] += layer.size
    return needs
