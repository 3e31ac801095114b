"""Exclusive storage: each disk has physical devices (spindles) of its node to itself."""

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
    """Return why a disk cannot have devices to itself on a node with exclusive storage; '' if it can."""
    row = TEMPLATES[disk.template]
    if row.shared or not row.has_disks:
        return ""
    if not row.can_be_exclusive:
        able = ", ".join(one.name for one in TEMPLATES.values() if one.can_be_exclusive)
        return f"disks of template {row.name} share devices; use {able}"
    return "" if disk.spindles else "the disk has no number of spindles (spindles=N)"


def check_asked(snapshot: Snapshot, node: Node, disks: Iterable[Disk]) -> None:
    """Refuse spindles in a request if disks share devices: the number would have no effect."""
    if is_exclusive(snapshot.cluster, snapshot.groups[node.group]):
        return
    if any(disk.spindles for disk in disks):
        raise InputError(
            f"requires exclusive storage, which group {snapshot.groups[node.group].name} does not have"
            " (gnt-group modify --node-parameters exclusive_storage=yes)",
            "spindles",
        )


def check_spindles(snapshot: Snapshot, info: NodeInfo, node: Node, disks: Iterable[Disk]) -> None:
    """Refuse new disks if a node with exclusive storage has too few devices."""
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
                f"node {node.name} has {space.free_devices} unused spindles in {space.unit.key}"
                f" but needs {needs[space.unit]}",
                ErrorCode.NO_RESOURCES,
            )
