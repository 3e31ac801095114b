"""The objects of a cluster: frozen structs, tracked by UUID; a name is an attribute.

Names and meaning of fields are those of Ganeti's configuration. `serial_no` rises with each
change of the object, `ctime` and `mtime` are seconds since the epoch. Each stored value carries
`format`, so that a later version can read what an earlier one wrote.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType

import msgspec

from ganeti.model.cluster_params import ClusterParams
from ganeti.model.names import AdminState, AdminStateSource, AllocPolicy, Consistency
from ganeti.model.params import Params
from ganeti.model.recovery import InstanceRow, NodeState
from ganeti.model.stored import Stored

NodeUuid = NewType("NodeUuid", str)
InstanceUuid = NewType("InstanceUuid", str)
GroupUuid = NewType("GroupUuid", str)
NetworkUuid = NewType("NetworkUuid", str)
ImageUuid = NewType("ImageUuid", str)


class Cluster(ClusterParams, frozen=True, kw_only=True):
    """The cluster itself; there is one."""

    master_node: NodeUuid
    master_ip: str = ""
    authorities: tuple[str, ...] = ()
    """Certificates (PEM) of the authorities that nodes accept, the signing one first; empty: the original authority."""
    certificate_generation: int = 0
    """The epoch that all nodes' certificates should have."""
    renewed_files: dict[str, str] = {}
    """Path of each renewed secret -> SHA-256 of the valid content; a candidate that missed the renewal has another."""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What survives a change of master about a node (D12)."""

    node: NodeUuid
    state: NodeState
    epoch: int
    """Of the master that committed it."""
    is_armed: bool = False
    """Its watchdog was armed when it got its last lease."""
    why: str = ""
    is_off: bool = False
    """FENCED because its power is off: no guest runs there. A watchdog ends only those that it knows as protected."""
    by_storage: bool = False
    """FENCED because its storage refuses its writes to the disks of the instances in `fenced_instances`, and only to these."""
    fenced_instances: tuple[str, ...] = ()
    """Instances by UUID whose storage refuses the writes of this node; until it has returned."""
    asked_storage: bool = False
    """The storage may have been asked to refuse its writes; committed before that, until it has returned."""

    def has_ended(self, instance: str, *, under_lease: bool) -> bool:
        """Return whether a guest of this instance certainly runs no more here, or cannot write its disks (D7)."""
        if self.state is not NodeState.FENCED:
            return False
        is_kept = instance in self.fenced_instances if self.by_storage else under_lease
        return self.is_off or is_kept


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Planned work on a node, during which automatic recovery ignores it."""

    began_at: float
    """Seconds since the epoch."""
    has_drained: bool = False
    """The node was not drained before."""
    stopped: tuple[InstanceUuid, ...] = ()
    """Instances that were shut down because only this node has their disks; they are started at the end."""


class Node(Stored, frozen=True, kw_only=True):
    """A host. `certificate` is the SHA-256 fingerprint of its certificate, in lower-case hexadecimal."""

    uuid: NodeUuid
    primary_ip: str
    secondary_ip: str
    group: GroupUuid
    certificate: str
    next_certificate: str = ""
    """The former fingerprint, also valid while its certificate is renewed."""
    certificate_generation: int = 0
    port: int = 1811
    master_candidate: bool = False
    offline: bool = False
    awaits_return: bool = False
    """Automatic recovery has marked it offline, and brings it back once it answers."""
    drained: bool = False
    master_capable: bool = True
    vm_capable: bool = True
    powered: bool = True
    """The last report of its out-of-band program or fence agent; without either it has no meaning."""
    ndparams: Params = {}
    fence_secret: str = ""
    """The password of its fence agent; never shown, logged or put into jobs (G23)."""
    recovery: NodeRow | None = None
    """What automatic recovery has done about it; None before the first time."""
    maintenance: Maintenance | None = None
    """None while it is in service."""
    moved_away: tuple[InstanceUuid, ...] = ()
    """Instances that left it for its maintenance and may return; those that it has again have returned."""
    tags: tuple[str, ...] = ()

    @property
    def certificates(self) -> tuple[str, ...]:
        """Return the valid fingerprints."""
        return tuple(filter(None, (self.certificate, self.next_certificate)))


class NodeGroup(Stored, frozen=True, kw_only=True):
    """Nodes that are close to each other; policies and parameters apply to all of them."""

    uuid: GroupUuid
    alloc_policy: AllocPolicy = AllocPolicy.PREFERRED
    ndparams: Params = {}
    beparams: Params = {}
    """Of `GROUP_BACKEND_PARAMS`, for the instances whose primary nodes are in the group."""
    diskparams: dict[str, Params] = {}
    ipolicy: Params = {}
    networks: dict[NetworkUuid, Params] = {}
    """The networks that its nodes are connected to, with mode, link and VLAN of the interfaces there."""
    tags: tuple[str, ...] = ()


class Network(Stored, frozen=True, kw_only=True):
    """A subnet whose addresses are assigned to interfaces of instances.

    Used addresses are not stored here: an interface has its address, which is then unavailable to others.
    """

    uuid: NetworkUuid
    network: str
    """The pool, for example `192.0.2.0/24`; of either family."""
    gateway: str | None = None
    network6: str | None = None
    """An IPv6 subnet in which guests configure their own addresses."""
    gateway6: str | None = None
    mac_prefix: str | None = None
    """First three bytes of new MAC addresses; None: the cluster's."""
    external: tuple[tuple[int, int], ...] = ()
    """Addresses for other uses: first and last of each range, counted from the subnet's first."""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may write a disk, as the state says (D1)."""

    generation: int
    current: frozenset[NodeUuid]
    """The copies that have every acknowledged write."""
    writer: NodeUuid | None = None
    """The node that may write; None when the disk was closed in order."""
    epoch: int = 0
    """Of the master that committed this."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One disk, or one layer of it: the layers below are its children."""

    uuid: str
    size: int
    """MiB"""
    template: str
    logical_id: tuple[str | int, ...] = ()
    """The name on every node: `(driver, path)` for templates in files."""
    parts: dict[NodeUuid, tuple[str | int, ...]] = {}
    """The names of the parts of single nodes, if they differ: a minor, the name of a volume."""
    children: tuple["Disk", ...] = ()
    mode: str = "rw"
    name: str | None = None
    params: Params = {}
    secret: str = ""
    """The shared secret of its nodes if it is mirrored; never shown, logged or put into jobs (G23)."""
    grant: Grant | None = None
    """Who may write it; None if its instance is not protected."""
    imported: bool = False
    """True if upstream has created it, so that its metadata is trusted without the marks of this implementation."""

    def part(self, node: NodeUuid) -> tuple[str | int, ...]:
        """Return a node's name of this layer."""
        return self.parts.get(node, self.logical_id)

    @property
    def spindles(self) -> int | None:
        """Return the number of physical devices of its node for this disk alone; None if it is not recorded."""
        return self.params.get("spindles") or None

    def layers(self) -> "Iterator[Disk]":
        """Yield the disk and all layers below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.layers()


class DiskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One disk in a snapshot: its UUID, its size then, and the name of the snapshot in the disk's storage."""

    disk: str
    size: int
    """MiB"""
    name: str


class SavedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory and the devices of a running guest, on a disk of the instance's template that no guest sees."""

    disk: Disk
    length: int
    """The bytes at the beginning of the disk that count."""
    sha256: str
    """Their digest."""


class InstanceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All disks of an instance at one moment; the names of an instance's snapshots differ."""

    uuid: str
    name: str
    ctime: float
    consistency: Consistency
    disks: tuple[DiskSnapshot, ...]
    memory: SavedMemory | None = None
    """Set if the guest can continue from the moment of the snapshot."""

    @property
    def size(self) -> int:
        """MiB of its disks together."""
        return sum(disk.size for disk in self.disks)


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface; `nicparams` holds only differences from the cluster's.

    In a network, mode, link and VLAN are those of the network in the group of the instance's node.
    """

    uuid: str
    mac: str
    ip: str | None = None
    name: str | None = None
    network: NetworkUuid | None = None
    nicparams: Params = {}


class LiveRestore(msgspec.Struct, frozen=True, kw_only=True):
    """A guest that runs above a backup while its disks are restored; only its node has what it has written since."""

    node: str
    """UUID of the node with the backup."""
    target: str
    """The directory on that node."""
    point: str
    """The name of the backup."""
    token: str
    """The name of this restore on the nodes."""


class UnfinishedRestore(msgspec.Struct, frozen=True, kw_only=True):
    """A restore from a backup: its name, and the number of the only disk, if it is one."""

    point: str
    disk: int | None = None
    live: LiveRestore | None = None
    """None if the disks may be a mixture of two contents."""


class DiskSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The disks that a running guest gets instead of its present ones, while only its node knows which it uses."""

    token: str
    """The move's, in the record of the node."""
    disk_template: str
    disks: tuple[Disk, ...]
    secondary_nodes: tuple[NodeUuid, ...] = ()


class Instance(Stored, frozen=True, kw_only=True):
    """A virtual machine; hvparams, beparams and osparams hold only differences from the defaults."""

    uuid: InstanceUuid
    primary_node: NodeUuid
    secondary_nodes: tuple[NodeUuid, ...] = ()
    migrating_to: NodeUuid | None = None
    """The other possible node of the guest, until a migration is resolved (G5, F20).

    Its own node while `switching` is set.
    """
    switching: DiskSwitch | None = None
    """Set for the moment in which the running guest changes its disks, until it is known which ones it has."""
    handed_over: bool = False
    """True if that other node has sent the guest, and the primary node may have resumed it."""
    os: str = ""
    hypervisor: str = "kvm"
    admin_state: AdminState = AdminState.DOWN
    admin_state_source: AdminStateSource = AdminStateSource.ADMIN
    disk_template: str = "diskless"
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    hvparams: Params = {}
    beparams: Params = {}
    recovery: InstanceRow | None = None
    """What automatic recovery has tried; None before the first time."""
    under_lease: bool = False
    """Its node has confirmed that the guest does not outlive the node's lease; no master tells the node otherwise
    before it has cleared this."""
    snapshots: tuple[InstanceSnapshot, ...] = ()
    """The oldest first."""
    rolling_back: str | None = None
    """The UUID of a snapshot to which the disks are rolled back: until that is complete, the guest cannot start."""
    restoring: UnfinishedRestore | None = None
    """The backup from which the disks are restored: until that is complete, the guest cannot start."""
    template: bool = False
    """True if it only exists to be cloned: it cannot start."""
    osparams: dict[str, str] = {}
    network_port: int | None = None
    """TCP port of its display, from the cluster's pool; None if it has none, or the pool was empty."""
    osparams_private: dict[str, str] = {}
    """Never shown, logged or put into jobs (G23)."""

    @property
    def all_nodes(self) -> tuple[NodeUuid, ...]:
        """Return the nodes, the primary first."""
        return (self.primary_node, *self.secondary_nodes)

    @property
    def memory_disks(self) -> tuple[Disk, ...]:
        """Return the disks with the memory of its snapshots, which no guest sees."""
        return tuple(one.memory.disk for one in self.snapshots if one.memory is not None)


class DetachedDisk(Stored, frozen=True, kw_only=True):
    """A disk that was detached from an instance and keeps its data; UUID and name are the disk's."""

    disk: Disk
    nodes: tuple[NodeUuid, ...] = ()
    """The nodes of the disk, the primary first; none if every node sees it."""
    last_instance: str = ""
    """The name of the instance from which it was detached."""

    @property
    def what(self) -> str:
        """The name in errors."""
        return f"disk {self.name or self.uuid}"


class ImageDisk(msgspec.Struct, frozen=True, kw_only=True):
    """One disk of an image."""

    size: int
    """MiB that an instance's disk needs at least."""
    sha256: str = ""
    """The digest of its whole content; '' for an empty disk, which has no content."""


class Image(Stored, frozen=True, kw_only=True):
    """Content for the disks of new instances, kept in the image stores of some nodes."""

    uuid: ImageUuid
    description: str = ""
    disks: tuple[ImageDisk, ...]
    stored: int = 0
    """MiB that its content takes on a node; holes take nothing."""
    nodes: tuple[NodeUuid, ...] = ()
    """The nodes that have it."""
    disk_size: int = 0
    """MiB of the first disk of a new instance, unless its request has a size; 0: the size of the image's disk."""
    firmware: str = ""
    """The firmware that it needs, as in the parameter of KVM; '': any."""
    cloud_init: bool = True
    """True if its system reads settings for cloud-init, so that new instances get a disk with them."""
    beparams: Params = {}
    """Backend parameters that the imported description of a machine had."""
    nics: int = 1
    """The number of network interfaces that it had."""

    @property
    def directory(self) -> str:
        """The name of its directory in the store of a node."""
        return f"image-{self.uuid}"

    @property
    def size(self) -> int:
        """MiB of its disks together."""
        return sum(disk.size for disk in self.disks)
