"""Parts of the answers about instances: those that clients unpack by position, and snapshots."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ganeti.model.objects import InstanceSnapshot

MIB = 1024 * 1024


class NicView(NamedTuple):
    """One interface of an instance; `network` is a UUID, `network_info` describes it, `name` among the rest."""

    name: str | None
    uuid: str
    ip: str | None
    mac: str
    mode: str
    link: str
    vlan: str
    network: str | None
    network_info: Mapping[str, Any] | None

    @property
    def network_name(self) -> str | None:
        return None if self.network_info is None else self.network_info["name"]


class CopyState(IntEnum):
    """The copy of a disk on one node."""

    OK = 1
    SYNCING = 2
    UNKNOWN = 3
    FAULTY = 4


class DiskView(NamedTuple):
    """An existing disk, as one node sees it; numbers of devices are None for files."""

    path: str
    major: int | None
    minor: int | None
    sync_percent: float | None
    """None if no synchronisation is under way."""
    seconds_left: float | None
    is_degraded: bool
    state: CopyState


def snapshot_dictionary(one: InstanceSnapshot) -> dict[str, Any]:
    """Return a snapshot in the form of queries; sizes in MiB."""
    return {
        "name": one.name,
        "uuid": one.uuid,
        "ctime": one.ctime,
        "size": one.size,
        "consistency": one.consistency.value,
        "memory": None if one.memory is None else -(-one.memory.length // MIB),
        "disks": [{"uuid": disk.disk, "size": disk.size} for disk in one.disks],
    }
