"""An instance in the form for a node: every parameter resolved, no lookup left."""

import msgspec

from ganeti.model.objects import Grant
from ganeti.model.params import Params


class DiskPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Another node with a part of the same disk."""

    name: str
    address: str
    part: tuple[str | int, ...]
    offline: bool = False
    """Marked offline: only then may a disk be used without it."""


class DiskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One disk, or a layer of it, in the form for the storage driver and the hypervisor of one node."""

    uuid: str
    index: int
    size: int
    """MiB"""
    template: str
    logical_id: tuple[str | int, ...]
    """The name on every node."""
    part: tuple[str | int, ...] = ()
    """The name of this node's own part; empty if that is the same."""
    peers: tuple[DiskPeer, ...] = ()
    children: "tuple[DiskSpec, ...]" = ()
    mode: str = "rw"
    params: Params = {}
    wipe: bool = True
    """True if new space must read as zeros before its first use."""
    address: str = ""
    """The address of this node for its peers."""
    secret: str = ""
    """The shared secret of the peers; see `public`."""
    exclusive: bool = False
    """True if it shares no physical device of the node with another disk."""
    imported: bool = False
    """As in `Disk`."""
    name: str = ""
    """The name that a user chose."""
    grant: Grant | None = None
    """As in `Disk`: the node opens the disk for writing only if this names it as the writer."""

    @property
    def own_id(self) -> tuple[str | int, ...]:
        """The name on this node."""
        return self.part or self.logical_id

    @property
    def public(self) -> "DiskSpec":
        """Return the same without secrets, in the form for jobs."""
        return msgspec.structs.replace(self, secret="") if self.secret else self

    @property
    def place(self) -> str:
        """The location for people: a path, a name."""
        return str(self.own_id[-1]) if self.own_id else self.uuid


class NetworkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The network of an interface, in the form for scripts."""

    name: str
    uuid: str
    network: str
    gateway: str | None = None
    network6: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    tags: tuple[str, ...] = ()

    def environment(self, prefix: str = "") -> dict[str, str]:
        """Return the variables of scripts and hooks, by upstream's names; missing values are omitted, except tags."""
        given = {
            "NETWORK_NAME": self.name,
            "NETWORK_UUID": self.uuid,
            "NETWORK_SUBNET": self.network,
            "NETWORK_GATEWAY": self.gateway,
            "NETWORK_SUBNET6": self.network6,
            "NETWORK_GATEWAY6": self.gateway6,
            "NETWORK_MAC_PREFIX": self.mac_prefix,
        }
        found = {prefix + name: value for name, value in given.items() if value}
        found[f"{prefix}NETWORK_TAGS"] = " ".join(self.tags)
        return found


class NicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface.

    `mode` is `bridged`, `routed` or `openvswitch`, `link` a bridge, routing table or switch.
    """

    uuid: str
    index: int
    mac: str
    ip: str | None = None
    mode: str = "bridged"
    link: str = ""
    vlan: str = ""
    """`.10` untagged, `:20:30` tagged, `.10:20:30` both; '' none."""
    network: NetworkSpec | None = None


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
    """The TCP port of its display (VNC or SPICE); unique in the cluster."""
    is_protected: bool = False
    """It may be started on another node automatically, so it runs only while its node has a lease (D7)."""
    as_of: int = 0
    """The position of the configuration that says so; 0 from a master of an earlier version."""


class OsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an instance that only the scripts of its OS use; nodes do not interpret them."""

    primary_node: str = ""
    """UUIDs of nodes."""
    secondary_nodes: tuple[str, ...] = ()
    ctime: float = 0.0
    mtime: float = 0.0
    beparams: Params = {}
    disk_names: tuple[str, ...] = ()
    """By index; '' for a disk without a name."""
    nic_names: tuple[str, ...] = ()


NO_FACTS = OsFacts()
