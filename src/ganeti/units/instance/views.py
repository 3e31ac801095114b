"""Interfaces and disks in the form that clients of Ganeti 3 unpack."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.config.fill import filled_nicparams, group_of
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.disk_templates import DRBD
from ganeti.model.instance_view import CopyState, DiskView, NicView
from ganeti.model.names import AdminState
from ganeti.model.objects import Disk, Instance, Network, Nic, NodeUuid
from ganeti.rpc.procedures.disks import DiskInfo
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.mirrors.judge import OFFLINE, Seen, judge, problem


@dataclass(frozen=True)
class SeenDisks:
    """The disks of an instance as its nodes see them; empty without a node's answer."""

    primary: Sequence[DiskInfo] = ()
    secondary: Sequence[DiskInfo] = ()


def nic_view(snapshot: Snapshot, instance: Instance, nic: Nic) -> NicView:
    """Return an interface, with the parameters of its network or the cluster."""
    params = filled_nicparams(snapshot.cluster, nic, group_of(snapshot, instance.primary_node))
    return NicView(
        nic.name,
        nic.uuid,
        nic.ip,
        nic.mac,
        str(params["mode"]),
        str(params["link"]),
        str(params["vlan"]),
        nic.network,
        _network_view(snapshot.networks[nic.network]) if nic.network else None,
    )


def _network_view(network: Network) -> dict[str, Any]:
    shown = ("name", "uuid", "network", "gateway", "network6", "gateway6", "mac_prefix")
    return {name: getattr(network, name) for name in shown}


def disk_view(
    snapshot: Snapshot, instance: Instance, index: int, found: SeenDisks
) -> dict[str, Any]:
    """Return a disk; a mirrored one with nodes and minors, but never its secret (G23)."""
    disk = instance.disks[index]
    primary = found.primary[index] if found.primary else None
    secondary = found.secondary[index] if found.secondary else None
    return {
        "iv_name": f"disk/{index}",
        "uuid": disk.uuid,
        "name": disk.name,
        "dev_type": disk.template,
        **_address(snapshot, instance, disk),
        "size": disk.size,
        "spindles": disk.spindles,
        "mode": disk.mode,
        "pstatus": _status(primary),
        "sstatus": _status(secondary),
        "children": [_layer(child, instance) for child in disk.children],
        "on_primary": wire.plain(primary),
        "on_secondary": wire.plain(secondary),
        "mirror": _mirror(snapshot, instance, index, found),
    }


def _mirror(
    snapshot: Snapshot, instance: Instance, index: int, found: SeenDisks
) -> dict[str, str | None] | None:
    """Return a mirrored disk's state, its fault, and the repair command; None if no node was queried."""
    if not is_mirrored(instance) or not (found.primary or found.secondary):
        return None
    asked = zip(instance.all_nodes, (found.primary, found.secondary), strict=True)
    parts = []
    for uuid, infos in asked:
        node, info = snapshot.nodes[uuid], infos[index] if infos else None
        why = "" if info else OFFLINE if node.offline else "the node did not answer"
        parts.append(Seen(index, node.name, uuid == instance.primary_node, info, why))
    verdict = judge(parts, mirrored=True)
    told = problem(verdict, instance.name, is_up=instance.admin_state is AdminState.UP)
    return {
        "state": str(verdict.state),
        "problem": told.text if told else None,
        "repair": told.command or None if told else None,
    }


def _layer(disk: Disk, instance: Instance) -> dict[str, Any]:
    return {
        "iv_name": None,
        "uuid": disk.uuid,
        "name": disk.name,
        "dev_type": disk.template,
        "logical_id": list(disk.part(NodeUuid(instance.primary_node))),
        "drbd_info": None,
        "size": disk.size,
        "spindles": disk.spindles,
        "mode": disk.mode,
        "pstatus": None,
        "sstatus": None,
        "children": [_layer(child, instance) for child in disk.children],
    }


def _address(snapshot: Snapshot, instance: Instance, disk: Disk) -> dict[str, Any]:
    """Return `logical_id` and `drbd_info`; None stands for the secret of a mirror."""
    nodes = [instance.primary_node, *instance.secondary_nodes]
    if disk.template != DRBD.name or len(nodes) < 2:  # noqa: PLR2004 - a mirror has two
        return {"logical_id": list(disk.part(instance.primary_node)), "drbd_info": None}
    (port,) = disk.logical_id
    minors = [disk.part(node)[0] for node in nodes]
    names = [snapshot.nodes[node].name for node in nodes]
    return {
        "logical_id": [*nodes, port, *minors, None],
        "drbd_info": {
            "primary_node": names[0],
            "primary_minor": minors[0],
            "secondary_node": names[1],
            "secondary_minor": minors[1],
            "port": port,
        },
    }


def _status(info: DiskInfo | None) -> DiskView | None:
    if info is None or not info.exists:
        return None
    major, minor = info.device or (None, None)
    if info.sync is None:
        state = CopyState.FAULTY if info.problem else CopyState.OK
        return DiskView(info.path, major, minor, None, None, bool(info.problem), state)
    if info.sync.percent is not None:
        state = CopyState.SYNCING
    else:
        state = CopyState.OK if info.sync.up_to_date else CopyState.FAULTY
    return DiskView(
        info.path,
        major,
        minor,
        info.sync.percent,
        info.sync.seconds_left,
        not info.sync.in_sync,
        state,
    )
