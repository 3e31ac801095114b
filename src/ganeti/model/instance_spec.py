"""An instance as a node needs it: every parameter resolved, nothing left to look up."""

import msgspec

from ganeti.model.params import Params


class DiskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One disk as the storage driver and the hypervisor see it."""

    uuid: str
    index: int
    size: int
    """MiB"""
    template: str
    logical_id: tuple[str | int, ...]
    mode: str = "rw"
    params: Params = {}


class NicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface; `mode` is `bridged`, `routed` or `openvswitch`, `link` a bridge, routing table or switch."""

    uuid: str
    index: int
    mac: str
    ip: str | None = None
    mode: str = "bridged"
    link: str = ""
    vlan: str = ""
    """`.10` untagged, `:20:30` tagged, `.10:20:30` both; '' none."""


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A whole instance; memory in MiB."""

    name: str
    uuid: str
    hypervisor: str
    os: str
    memory: int
    vcpus: int
    hvparams: Params
    disk_template: str = "diskless"
    disks: tuple[DiskSpec, ...] = ()
    nics: tuple[NicSpec, ...] = ()
    tags: tuple[str, ...] = ()
    network_port: int | None = None
    """The TCP port of its display (VNC or SPICE); one in the whole cluster."""
