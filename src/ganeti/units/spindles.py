"""Exclusive storage: each disk has physical devices (spindles) of its node for itself."""

from collections import Counter
from collections.abc import Iterable

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import is_exclusive
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_unit
from ganeti.model.disk_templates import TEMPLATES, StorageUnit
from ganeti.model.objects import Disk, Node
from ganeti.rpc.procedures.host import NodeInfo

REPAIR = "gnt-cluster repair-disk-sizes records how many"


def misfit(disk: Disk) -> str:
    """Return why a disk cannot be kept apart from others on a node with exclusive storage; '' if it can."""
    row = TEMPLATES[disk.template]
    if row.shared or not row.has_disks:
        return ""
    if not row.can_be_exclusive:
        able = ", ".join(one.name for one in TEMPLATES.values() if one.can_be_exclusive)
        return f"disks of template {row.name} share devices; use {able}"
    return "" if disk.spindles else "it does not say how many spindles a disk has (spindles=N)"


def check_asked(snapshot: Snapshot, node: Node, disks: Iterable[Disk]) -> None:
    """Refuse spindles that are asked for where disks share devices: they would mean nothing."""
    if is_exclusive(snapshot.cluster, snapshot.groups[node.group]):
        return
    if any(disk.spindles for disk in disks):
        raise InputError(
            f"needs exclusive storage, which group {snapshot.groups[node.group].name} does not have"
            " (gnt-group modify --node-parameters exclusive_storage=yes)",
            "spindles",
        )


def check_spindles(snapshot: Snapshot, info: NodeInfo, node: Node, disks: Iterable[Disk]) -> None:
    """Refuse new disks for which a node with exclusive storage has no devices."""
    if not is_exclusive(snapshot.cluster, snapshot.groups[node.group]):
        return
    needs: Counter[StorageUnit] = Counter()
    for disk in disks:
        if why := misfit(disk):
            raise PrereqError(
                f"node {node.name} has exclusive storage: {why}", ErrorCode.WRONG_INPUT
            )
        if (unit := disk_unit(snapshot.cluster, disk)) is not None:
            needs[unit] += disk.spindles or 0
    for space in info.storage:
        if space.free_devices < needs[space.unit]:
            raise PrereqError(
                f"node {node.name} has {space.free_devices} unused spindles in {space.unit.key},"
                f" {needs[space.unit]} are needed",
                ErrorCode.NO_RESOURCES,
            )
