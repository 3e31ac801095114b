"""What exists in a cluster: frozen structs, tracked by UUID; a name is an attribute.

Names and meaning of fields are those of Ganeti's configuration. `serial_no` rises with each
change of the object, `ctime` and `mtime` are seconds since the epoch. Each stored value carries
`format`, so that a later version can read what an earlier one wrote.
"""

from typing import Any, NewType

import msgspec

from ganeti.model.disk_templates import ENABLED_BY_DEFAULT
from ganeti.model.names import AdminState, AdminStateSource, AllocPolicy
from ganeti.model.params import Params

NodeUuid = NewType("NodeUuid", str)
InstanceUuid = NewType("InstanceUuid", str)
GroupUuid = NewType("GroupUuid", str)

FORMAT = 1


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Fields that every object has."""

    uuid: str
    serial_no: int = 1
    ctime: float = 0.0
    mtime: float = 0.0
    format: int = FORMAT


class Cluster(Stored, frozen=True, kw_only=True):
    """The cluster itself; there is one."""

    name: str
    master_node: NodeUuid
    master_ip: str = ""
    master_netdev: str = ""
    master_netmask: int = 32
    mac_prefix: str = "aa:00:00"
    enabled_hypervisors: tuple[str, ...] = ("kvm",)
    enabled_disk_templates: tuple[str, ...] = ENABLED_BY_DEFAULT
    hvparams: dict[str, Params] = {}
    os_hvp: dict[str, dict[str, Params]] = {}
    beparams: dict[str, Params] = {}
    nicparams: dict[str, Params] = {}
    diskparams: dict[str, Params] = {}
    ndparams: Params = {}
    ipolicy: Params = {}
    osparams: dict[str, dict[str, str]] = {}
    hidden_os: tuple[str, ...] = ()
    """OS definitions that lists leave out; they may be used (S155)."""
    blacklisted_os: tuple[str, ...] = ()
    """OS definitions that no new instance may have (S156)."""
    candidate_pool_size: int = 10
    default_iallocator: str = ""
    """Lists of allocators by kind of request, see `ganeti.model.iallocator.parse_defaults`."""
    default_iallocator_params: Params = {}
    """Options for allocators, by name without dashes."""
    file_storage_dir: str = ""
    shared_file_storage_dir: str = ""
    max_running_jobs: int = 1000
    remote_hvparams: tuple[str, ...] = ()
    """Hypervisor parameters that touch the host and may be set through the REST interface all the same."""
    enabled_data_collectors: dict[str, bool] = {}
    """Those that were switched on or off; see `ganeti.model.data_collectors`."""
    data_collector_interval: dict[str, int] = {}
    """Microseconds."""
    uid_pool: tuple[tuple[int, int], ...] = ()
    """First and last user id of ranges that guests run under (S103)."""
    tags: tuple[str, ...] = ()


class Node(Stored, frozen=True, kw_only=True):
    """A host. `certificate` is the SHA-256 fingerprint of its certificate, in lower-case hexadecimal."""

    uuid: NodeUuid
    name: str
    primary_ip: str
    secondary_ip: str
    group: GroupUuid
    certificate: str
    port: int = 1811
    master_candidate: bool = False
    offline: bool = False
    drained: bool = False
    master_capable: bool = True
    vm_capable: bool = True
    ndparams: Params = {}
    tags: tuple[str, ...] = ()


class NodeGroup(Stored, frozen=True, kw_only=True):
    """Nodes that are near each other; policies and parameters apply to all of them."""

    uuid: GroupUuid
    name: str
    alloc_policy: AllocPolicy = AllocPolicy.PREFERRED
    ndparams: Params = {}
    diskparams: dict[str, Params] = {}
    ipolicy: Params = {}
    networks: dict[str, Params] = {}
    tags: tuple[str, ...] = ()


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One disk. `logical_id` says where the data is: `(driver, path)` for templates in files."""

    uuid: str
    size: int
    """MiB"""
    template: str
    logical_id: tuple[str | int, ...] = ()
    mode: str = "rw"
    name: str | None = None
    params: Params = {}


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface; `nicparams` holds only what differs from the cluster's."""

    uuid: str
    mac: str
    ip: str | None = None
    name: str | None = None
    nicparams: Params = {}


class Instance(Stored, frozen=True, kw_only=True):
    """A virtual machine; hvparams, beparams and osparams hold only what differs from the defaults."""

    uuid: InstanceUuid
    name: str
    primary_node: NodeUuid
    secondary_nodes: tuple[NodeUuid, ...] = ()
    migrating_to: NodeUuid | None = None
    """Where the guest may be besides its primary node, until a migration is settled (G5, F20)."""
    handed_over: bool = False
    """That other node has sent the guest, and the primary node may have let it go on."""
    os: str = ""
    hypervisor: str = "kvm"
    admin_state: AdminState = AdminState.DOWN
    admin_state_source: AdminStateSource = AdminStateSource.ADMIN
    disk_template: str = "diskless"
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    hvparams: Params = {}
    beparams: Params = {}
    osparams: dict[str, str] = {}
    network_port: int | None = None
    """TCP port of its display, from the cluster's pool; None if it has none, or the pool was empty."""
    osparams_private: dict[str, str] = {}
    """Never shown, logged or put into jobs (G23)."""
    tags: tuple[str, ...] = ()

    @property
    def all_nodes(self) -> tuple[NodeUuid, ...]:
        """The primary node first."""
        return (self.primary_node, *self.secondary_nodes)


ConfigObject = Cluster | Node | NodeGroup | Instance

KINDS: dict[str, type[Any]] = {
    "cluster": Cluster,
    "node": Node,
    "group": NodeGroup,
    "instance": Instance,
}
"""Kind of row in the state store -> type of object."""
