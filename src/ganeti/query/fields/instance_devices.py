"""Fields of instances about their disks and network interfaces: for all, and for each by index."""

from collections.abc import Callable
from typing import Any

from ganeti.config.storage_units import disk_usage
from ganeti.model.limits import MAX_DISKS, MAX_NICS
from ganeti.model.objects import Disk, Nic
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.instance_row import InstanceRow

_TEXT, _NUMBER, _UNIT, _OTHER = (
    ValueKind.TEXT,
    ValueKind.NUMBER,
    ValueKind.UNIT,
    ValueKind.OTHER,
)

# One entry per property of a disk: field for all disks, field for one, and its source.
_DISK_PROPERTIES: tuple[tuple[str, str, str, str, ValueKind, Callable[[Disk], Any]], ...] = (
    ("size", "sizes", "Disk_sizes", "Disk", _UNIT, lambda disk: disk.size),
    ("name", "names", "Disk_names", "DiskName", _TEXT, lambda disk: disk.name),
    ("uuid", "uuids", "Disk_UUIDs", "DiskUUID", _TEXT, lambda disk: disk.uuid),
    (
        "spindles",
        "spindles",
        "Disk_spindles",
        "DiskSpindles",
        _NUMBER,
        lambda disk: disk.spindles,
    ),
)


def _bridge(row: InstanceRow, nic: Nic) -> Any:
    params = row.nicparams(nic)
    return params.get("link") if params.get("mode") == "bridged" else None


_NicGetter = Callable[[InstanceRow, Nic], Any]
_NIC_PROPERTIES: tuple[tuple[str, str, str, str, _NicGetter], ...] = (
    ("mac", "macs", "NIC_MACs", "NicMAC", lambda _row, nic: nic.mac),
    ("ip", "ips", "NIC_IPs", "NicIP", lambda _row, nic: nic.ip),
    ("name", "names", "NIC_Names", "NicName", lambda _row, nic: nic.name),
    ("uuid", "uuids", "NIC_UUIDs", "NicUUID", lambda _row, nic: nic.uuid),
    ("mode", "modes", "NIC_modes", "NicMode", lambda row, nic: row.nicparams(nic).get("mode")),
    ("link", "links", "NIC_links", "NicLink", lambda row, nic: row.nicparams(nic).get("link")),
    ("vlan", "vlans", "NIC_VLANs", "NicVLAN", lambda row, nic: row.nicparams(nic).get("vlan")),
    ("bridge", "bridges", "NIC_bridges", "NicBridge", _bridge),
    ("network", "networks", "NIC_networks", "NicNetwork", lambda _row, nic: nic.network),
)


def _or_unavailable(value: Any) -> Any:
    return UNAVAILABLE if value is None else value


def _one_disk(index: int, get: Callable[[Disk], Any]) -> Callable[[InstanceRow], Any]:
    def value(row: InstanceRow) -> Any:
        disks = row.instance.disks
        return _or_unavailable(get(disks[index])) if index < len(disks) else UNAVAILABLE

    return value


def _one_nic(index: int, get: _NicGetter) -> Callable[[InstanceRow], Any]:
    def value(row: InstanceRow) -> Any:
        nics = row.instance.nics
        return _or_unavailable(get(row, nics[index])) if index < len(nics) else UNAVAILABLE

    return value


def _all_disks(get: Callable[[Disk], Any]) -> Callable[[InstanceRow], Any]:
    return lambda row: [get(disk) for disk in row.instance.disks]


def _all_nics(get: _NicGetter) -> Callable[[InstanceRow], Any]:
    return lambda row: [get(row, nic) for nic in row.instance.nics]


def disk_fields() -> list[Field[InstanceRow]]:
    """Return fields about disks: `disk_usage`, `disk.sizes`, `disk.size/0` and so on."""
    fields: list[Field[InstanceRow]] = [
        Field(
            "disk_usage",
            "DiskUsage",
            _UNIT,
            "Space that the disks take on each node of the instance",
            lambda row: disk_usage(row.context.snapshot.cluster, row.instance.disks),
        ),
        Field(
            "disk_template",
            "Disk_template",
            _TEXT,
            "How the disks are kept",
            lambda row: row.instance.disk_template,
        ),
        Field(
            "disk.count", "Disks", _NUMBER, "How many disks", lambda row: len(row.instance.disks)
        ),
    ]
    for one, many, titles, title, kind, get in _DISK_PROPERTIES:
        fields.append(
            Field(f"disk.{many}", titles, _OTHER, f"The {one} of each disk", _all_disks(get))
        )
        fields.extend(
            Field(
                f"disk.{one}/{index}",
                f"{title}/{index}",
                kind,
                f"The {one} of disk {index}",
                _one_disk(index, get),
            )
            for index in range(MAX_DISKS)
        )
    return fields


def nic_fields() -> list[Field[InstanceRow]]:
    """Return fields about network interfaces: `nic.macs`, `nic.mac/0` and so on."""
    fields: list[Field[InstanceRow]] = [
        Field(
            "nic.count",
            "NICs",
            _NUMBER,
            "How many network interfaces",
            lambda row: len(row.instance.nics),
        ),
        Field(
            "nic.networks.names",
            "NIC_networks_names",
            _OTHER,
            "The name of each interface's network",
            _all_nics(InstanceRow.network_name),
        ),
    ]
    fields.extend(
        Field(
            f"nic.network.name/{index}",
            f"NicNetworkName/{index}",
            _TEXT,
            f"The name of the network of interface {index}",
            _one_nic(index, InstanceRow.network_name),
        )
        for index in range(MAX_NICS)
    )
    for one, many, titles, title, get in _NIC_PROPERTIES:
        fields.append(
            Field(f"nic.{many}", titles, _OTHER, f"The {one} of each interface", _all_nics(get))
        )
        fields.extend(
            Field(
                f"nic.{one}/{index}",
                f"{title}/{index}",
                _TEXT,
                f"The {one} of interface {index}",
                _one_nic(index, get),
            )
            for index in range(MAX_NICS)
        )
    return fields
