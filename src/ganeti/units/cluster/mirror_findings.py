"""Findings about orphaned and unused mirrored devices, and about DRBD on the nodes; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DRBD, TEMPLATES, original_resource
from ganeti.model.mirror_states import MirrorState
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import MirroredDevice
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.units.cluster.findings import Finding
from ganeti.units.mirrors.judge import Verdict, problem

VERSION = "8.4"
Devices = Mapping[NodeUuid, list[MirroredDevice] | RpcError]
"""The kernel's devices on each node that was queried."""


def _named(device: MirroredDevice, known: Iterable[Mapping[str, tuple[int, Instance, int]]]) -> str:
    """The UUID of the disk, if it is known: upstream names its resources by their numbers."""
    if device.name == original_resource(device.number):
        for one in known:
            for uuid, (number, instance, at) in one.items():
                if number == device.number and instance.disks[at].imported:
                    return uuid
    return device.name


def minors(snapshot: Snapshot, node: Node) -> dict[str, tuple[int, Instance, int]]:
    """Return, by UUID of disk: its number on a node, its instance, and its index."""
    here = NodeUuid(node.uuid)
    return {
        disk.uuid: (int(disk.parts[here][0]), instance, at)
        for instance in snapshot.instances_of(here)
        for at, disk in enumerate(instance.disks)
        if here in disk.parts and TEMPLATES[disk.template].has_numbers
    }


def device_findings(
    snapshots: Sequence[Snapshot], nodes: Iterable[Node], devices: Devices, coming: Collection[str]
) -> Iterator[Finding]:
    """Yield minors that are in use but orphaned, differ from the configuration, or are not in use (F25).

    `snapshots` are those before and after the queries. Foreign devices are not reported while instances are being
    created (`coming` has their names).
    """
    for node in nodes:
        found = devices.get(NodeUuid(node.uuid))
        if found is None or isinstance(found, RpcError):
            continue
        known = [minors(snapshot, node) for snapshot in snapshots]
        names = {_named(device, known): device for device in found}
        for name, device in names.items():
            numbers = {one[name][0] for one in known if name in one}
            if not numbers and not coming:
                text = f"minor {device.number} is in use by {device.name}, which is not a disk of the cluster"
                yield Finding("ENODEDRBD", "node", node.name, text)
            elif numbers and device.number not in numbers:
                _number, instance, at = known[-1].get(name) or known[0][name]
                text = f"disk/{at} of {instance.name} has minor {device.number} instead of {min(numbers)}"
                yield Finding("ENODEDRBD", "node", node.name, text)
        yield from _unused(node, known, names.keys())


def _unused(
    node: Node, known: Sequence[Mapping[str, tuple[int, Instance, int]]], there: Collection[str]
) -> Iterator[Finding]:
    for uuid, (number, instance, at) in known[0].items():
        is_up = all(uuid in one and _is_up(one[uuid][1]) for one in known)
        if is_up and uuid not in there:
            text = (
                f"minor {number} (disk/{at} of {instance.name}) is not in use;"
                f" run: gnt-instance activate-disks {instance.name}"
            )
            yield Finding("ENODEDRBD", "node", node.name, text)


def mirror_findings(
    snapshots: Sequence[Snapshot], verdicts: Mapping[InstanceUuid, Sequence[Verdict]]
) -> Iterator[Finding]:
    """Yield mirrored disks with faults, each with the repair command; missing volumes are reported elsewhere."""
    for uuid, found in verdicts.items():
        if any(uuid not in snapshot.instances for snapshot in snapshots):
            continue
        instance = snapshots[-1].instances[uuid]
        for verdict in found:
            told = problem(verdict, instance.name, is_up=_is_up(instance))
            if told is None or verdict.state in (MirrorState.MISSING, MirrorState.CLOSED):
                continue
            # A silent node is a finding of its own, and a node that is marked offline is expected to be silent.
            is_error = not any(part.info is None for part in verdict.parts)
            yield Finding("EINSTANCEFAULTYDISK", "instance", instance.name, str(told), is_error)


def _is_up(instance: Instance) -> bool:
    return instance.admin_state is AdminState.UP and instance.migrating_to is None


def module_findings(
    snapshot: Snapshot, nodes: Iterable[Node], reports: Mapping[NodeUuid, VerifyReport | RpcError]
) -> Iterator[Finding]:
    """Yield faults of DRBD on the nodes that may have mirrored disks; an error only where disks exist."""
    if DRBD.name not in snapshot.cluster.enabled_disk_templates:
        return
    wanted = snapshot.cluster.drbd_helper
    for node in nodes:
        report = reports.get(NodeUuid(node.uuid))
        if not node.vm_capable or report is None or isinstance(report, RpcError):
            continue
        version, has_any = report.mirror_version, bool(minors(snapshot, node))
        if not version:
            text = "DRBD is not loaded (modprobe drbd)"
            yield Finding("ENODEDRBD", "node", node.name, text, is_error=has_any)
        elif not version.startswith(f"{VERSION}."):
            text = f"has DRBD {version}, but needs {VERSION}"
            yield Finding("ENODEDRBDVERSION", "node", node.name, text, is_error=has_any)
        elif report.mirror_helper != wanted:
            text = f"DRBD calls {report.mirror_helper!r:.100} instead of {wanted}: its option usermode_helper"
            yield Finding("ENODEDRBDHELPER", "node", node.name, text)
