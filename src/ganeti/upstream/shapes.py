"""The types of the fields of a configuration, in any version; a wrong type is an error with the name of the field.

Other names are checked where they are read. All may be absent or null: the readers decide what that means.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ganeti.model import wire

_Object = dict[str, Any]
_Words = dict[str, str | int | float | bool | None]
_Number = int | float | None
_Serial = Annotated[int, Meta(lt=1 << 53)]
_Time = Annotated[float, Meta(ge=0, lt=1 << 40)]
_Port = Annotated[int, Meta(ge=1, le=65535)]
_Count = Annotated[int, Meta(ge=0)]


class _Any(TypedDict, total=False):
    uuid: str | None
    name: str | None
    tags: list[str] | None
    serial_no: _Serial | None
    ctime: _Time | None
    mtime: _Time | None


class _Collector(TypedDict, total=False):
    active: bool | None
    interval: _Number


class _Whole(TypedDict, total=False):
    serial_no: _Serial | None


class _Cluster(_Any, total=False):
    cluster_name: str | None
    master_node: str | None
    master_ip: str | None
    enabled_hypervisors: list[str] | None
    enabled_disk_templates: list[str] | None
    compression_tools: list[str] | None
    hidden_os: list[str] | None
    blacklisted_os: list[str] | None
    enabled_user_shutdown: bool | None
    hvparams: dict[str, _Object] | None
    os_hvp: dict[str, dict[str, _Object]] | None
    beparams: dict[str, _Object] | None
    nicparams: dict[str, _Object] | None
    osparams: dict[str, _Words] | None
    ndparams: _Object | None
    diskparams: dict[str, _Object] | None
    ipolicy: _Object | None
    data_collectors: dict[str, _Collector] | None
    tcpudp_port_pool: list[_Port] | None
    highest_used_port: _Count | None


class _Node(_Any, total=False):
    primary_ip: str | None
    secondary_ip: str | None
    group: str | None
    master_candidate: bool | None
    offline: bool | None
    drained: bool | None
    master_capable: bool | None
    vm_capable: bool | None
    powered: bool | None
    ndparams: _Object | None


class _Group(_Any, total=False):
    alloc_policy: str | None
    ndparams: _Object | None
    diskparams: dict[str, _Object] | None
    ipolicy: _Object | None
    networks: dict[str, _Object] | None


class _Network(_Any, total=False):
    network: str | None
    gateway: str | None
    network6: str | None
    gateway6: str | None
    mac_prefix: str | None
    reservations: str | None
    ext_reservations: str | None


class _Nic(TypedDict, total=False):
    uuid: str | None
    name: str | None
    mac: str | None
    ip: str | None
    network: str | None
    nicparams: _Object | None


class _Disk(_Any, total=False):
    dev_type: str | None
    logical_id: list[Any] | None
    children: "list[_Disk] | None"
    size: _Count | None
    mode: str | None
    params: _Object | None
    nodes: list[str] | None
    spindles: _Count | None


class _Instance(_Any, total=False):
    primary_node: str | None
    os: str | None
    hypervisor: str | None
    admin_state: str | None
    admin_state_source: str | None
    disk_template: str | None
    disks: list[str | _Disk] | None
    nics: list[_Nic] | None
    hvparams: _Object | None
    beparams: _Object | None
    osparams: _Words | None
    osparams_private: _Words | None
    network_port: _Port | None
    forthcoming: bool | None


class _Filter(TypedDict, total=False):
    uuid: str | None
    watermark: _Count | None
    priority: _Count | None
    predicates: list[Any] | None
    reason_trail: list[Any] | None


_TABLES: Mapping[str, tuple[str, Any]] = {
    "nodes": ("node", _Node),
    "nodegroups": ("group", _Group),
    "instances": ("instance", _Instance),
    "disks": ("disk", _Disk),
    "networks": ("network", _Network),
    "filters": ("filter", _Filter),
}
"""Table -> the word for one of its objects, and their shape."""


def check_shapes(document: Mapping[str, Any]) -> None:
    """Raise InputError that names the first object and field of a wrong type."""
    wire.convert(document, _Whole, what="configuration")
    wire.convert(document["cluster"], _Cluster, what="cluster")
    for table, (word, shape) in _TABLES.items():
        for key, one in document[table].items():
            wire.convert(one, shape, what=f"{word} {one.get('name') or key!s:.80}")
