"""Disks in files that are missing, too small, or belong to nobody; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_unit
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, Disk, Instance, NodeUuid
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.units.cluster.findings import Finding

Stored = Mapping[NodeUuid, list[StoredDisk] | RpcError]
"""What lies in the storage units of each node that was asked."""


@dataclass(frozen=True)
class Listing:
    """What lies where: `local` by node, `shared` as one node sees it (None if that was not asked, or is silent)."""

    local: Stored
    shared: list[StoredDisk] | None

    def of(self, cluster: Cluster, instance: Instance) -> dict[str, int] | None:
        """Name -> MiB of all that lies where the instance's disks should; None if that is not known."""
        if DISK_TEMPLATES[instance.disk_template].shared:
            found: list[StoredDisk] | RpcError | None = self.shared
        else:
            found = self.local.get(instance.primary_node)
        if found is None or isinstance(found, RpcError):
            return None
        unit = storage_unit(cluster, instance.disk_template)
        return {one.name: one.size for one in found if one.unit == unit}


def missing_findings(
    snapshot: Snapshot, instances: Iterable[Instance], listing: Listing
) -> Iterator[Finding]:
    """Disks that instances have by the configuration, and not on the node."""
    for instance in instances:
        template = DISK_TEMPLATES.get(instance.disk_template)
        if template is None or storage_unit(snapshot.cluster, template.name) is None:
            continue
        there = listing.of(snapshot.cluster, instance)
        if there is None:
            continue
        node = snapshot.nodes[instance.primary_node]
        for number, disk in enumerate(instance.disks):
            path = _path(disk)
            if path not in there:
                text = f"disk/{number} is missing on {node.name}: {path}"
                yield Finding("EINSTANCEMISSINGDISK", "instance", instance.name, text)
            elif there[path] < disk.size:
                text = f"disk/{number} has {there[path]} MiB instead of {disk.size} MiB: {path}"
                yield Finding("EINSTANCEFAULTYDISK", "instance", instance.name, text)


def _path(disk: Disk) -> str:
    return str(disk.logical_id[1]) if len(disk.logical_id) > 1 else ""


def known_paths(snapshots: Iterable[Snapshot]) -> set[str]:
    """The paths of all disks of some configurations."""
    return {
        _path(disk)
        for snapshot in snapshots
        for instance in snapshot.instances.values()
        for disk in instance.disks
    }


def unknown_files(
    node_name: str, files: Iterable[StoredDisk], known: Collection[str], coming: Collection[str]
) -> Iterator[Finding]:
    """Files that belong to no instance, nor to one that a job is making (`coming` has its name)."""
    for file in files:
        if file.name not in known and not any(part in coming for part in file.name.split("/")):
            text = f"the file {file.name} ({file.size} MiB) belongs to no instance"
            yield Finding("ENODEORPHANLV", "node", node_name, text, is_error=False)
