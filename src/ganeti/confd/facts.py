"""The parts of the configuration that confd keeps: a few fields of each row, indexed, never a secret.

Rows are decoded by their required fields, so rows of older and newer versions are readable, too.
Pure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

import msgspec

from ganeti.base.errors import StoreError
from ganeti.model.cluster_values import DEFAULT
from ganeti.model.data_collectors import collecting
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.params import NIC_DEFAULTS
from ganeti.protocols.confd import NodeRole

CLUSTER, GROUP, INSTANCE, NODE = "cluster", "group", "instance", "node"
KINDS = (CLUSTER, GROUP, INSTANCE, NODE)
"""The kinds of rows that are read, in the order of the state's keys."""

Item = str | int
Params = dict[str, Any]


class ClusterFacts(msgspec.Struct, frozen=True):
    """The cluster itself."""

    uuid: str
    name: str
    master_node: str
    master_ip: str = ""
    nicparams: dict[str, Params] = {}
    enabled_data_collectors: dict[str, bool] = {}
    data_collector_interval: dict[str, int] = {}

    @property
    def default_link(self) -> str:
        """Return the link of interfaces that name none."""
        return str(self.nicparams.get(DEFAULT, {}).get("link") or NIC_DEFAULTS["link"])

    def collectors(self) -> dict[str, dict[str, Any]]:
        """Return the collectors in the form of Ganeti's configuration."""
        wanted = collecting(self.enabled_data_collectors, self.data_collector_interval)
        return {
            name: {"active": one.active, "interval": one.interval_us}
            for name, one in wanted.items()
        }


class GroupFacts(msgspec.Struct, frozen=True):
    """A node group."""

    uuid: str
    networks: dict[str, Params] = {}
    """Network -> the connection of the group's nodes to it."""


class NodeFacts(msgspec.Struct, frozen=True):
    """A node."""

    uuid: str
    name: str
    primary_ip: str
    master_candidate: bool = False
    offline: bool = False
    drained: bool = False
    group: str = ""


class DiskFacts(msgspec.Struct, frozen=True, omit_defaults=False):
    """A layer of a disk as it is shown, without parameters and a mirror's secret."""

    uuid: str
    size: int
    template: str
    logical_id: tuple[Item | None, ...] = ()
    parts: dict[str, tuple[Item, ...]] = {}
    children: tuple["DiskFacts", ...] = ()
    mode: str = "rw"
    name: str | None = None

    def minors(self, node: str) -> list[int]:
        """Return the node's minors of mirrored layers."""
        own = [number for number in self.parts.get(node, ()) if isinstance(number, int)]
        return own + [minor for child in self.children for minor in child.minors(node)]

    def without_secrets(self) -> "DiskFacts":
        """Return the same layers; of a mirror only its port and its numbers on the nodes are left."""
        template = TEMPLATES.get(self.template)
        is_mirror = template is None or template.has_port or template.has_numbers
        return msgspec.structs.replace(
            self,
            logical_id=self.logical_id[:1] if is_mirror else self.logical_id,
            parts={node: part[:1] for node, part in self.parts.items() if isinstance(part[0], int)},
            children=tuple(child.without_secrets() for child in self.children),
        )

    def shown(self) -> Params:
        """Return the shown form; `dev_type` is Ganeti's word."""
        return {
            "uuid": self.uuid,
            "size": self.size,
            "dev_type": self.template,
            "logical_id": self.logical_id,
            "minors": {node: part[0] for node, part in self.parts.items()},
            "children": [child.shown() for child in self.children],
            "mode": self.mode,
            "name": self.name,
        }


class NicFacts(msgspec.Struct, frozen=True):
    """A network interface."""

    uuid: str = ""
    mac: str = ""
    ip: str | None = None
    name: str | None = None
    network: str | None = None
    nicparams: Params = {}


class InstanceFacts(msgspec.Struct, frozen=True):
    """An instance; private parameters have no field."""

    uuid: str
    name: str
    primary_node: str
    secondary_nodes: tuple[str, ...] = ()
    serial_no: int = 1
    ctime: float = 0.0
    mtime: float = 0.0
    os: str = ""
    hypervisor: str = ""
    admin_state: str = ""
    admin_state_source: str = ""
    disk_template: str = ""
    disks: tuple[DiskFacts, ...] = ()
    nics: tuple[NicFacts, ...] = ()
    hvparams: Params = {}
    beparams: Params = {}
    osparams: dict[str, str] = {}
    network_port: int | None = None
    tags: tuple[str, ...] = ()

    def shown(self) -> Params:
        """Return the object of a query, with Ganeti's names; disks are named by their UUIDs."""
        fields: Params = msgspec.to_builtins(self)
        fields["disks"] = [disk.uuid for disk in self.disks]
        return fields


class Wire(NamedTuple):
    """The facts that determine the link of an interface (`ClusterCopy.link_of`); few, for many interfaces."""

    network: str = ""
    node: str = ""
    """The primary node, for an interface in a network."""
    link: str = ""
    """The interface's own link, for one outside of networks; '' for the cluster's default."""


@dataclass(frozen=True, slots=True)
class InstanceEntry:
    """The nodes of an instance, and its document, which is decoded only for queries that need it."""

    name: str
    primary_node: str
    secondary_nodes: tuple[str, ...]
    addresses: tuple[tuple[Wire, str], ...]
    """The address of each interface that has one."""
    document: bytes

    def read(self) -> InstanceFacts:
        return _INSTANCE.decode(self.document)


_CLUSTER = msgspec.json.Decoder(ClusterFacts)
_GROUP = msgspec.json.Decoder(GroupFacts)
_NODE = msgspec.json.Decoder(NodeFacts)
_INSTANCE = msgspec.json.Decoder(InstanceFacts)


def _read_instance(value: bytes) -> InstanceFacts:
    instance = _INSTANCE.decode(value)
    disks = tuple(disk.without_secrets() for disk in instance.disks)
    return msgspec.structs.replace(instance, disks=disks)


_READ: dict[str, Callable[[bytes], msgspec.Struct]] = {
    CLUSTER: _CLUSTER.decode,
    GROUP: _GROUP.decode,
    NODE: _NODE.decode,
    INSTANCE: _read_instance,
}


def without_secrets(kind: str, value: bytes) -> bytes:
    """Return a row of one of `KINDS` with the fields of the facts only, as nodes that hold a copy get it."""
    return msgspec.json.encode(_READ[kind](value))


class ClusterCopy:
    """The data of all queries at one position of the state."""

    def __init__(self) -> None:
        self.position = 0
        self.cluster: ClusterFacts | None = None
        self.groups: dict[str, GroupFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.node_names: dict[str, str] = {}
        self.instances: dict[str, InstanceEntry] = {}
        self.instance_names: dict[str, str] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_address: dict[str, set[str]] = {}
        self._by_wire: dict[Wire, dict[str, int]] = {}
        """Address -> number of instances with it there."""

    # Input of rows

    def put(self, kind: str, key: str, value: bytes) -> None:
        """Add a new or changed row of the state; rows of other kinds are ignored. StoreError."""
        try:
            if kind == CLUSTER:
                self.cluster = _CLUSTER.decode(value)
            elif kind == GROUP:
                self.groups[key] = _GROUP.decode(value)
            elif kind == NODE:
                self._put_node(key, _NODE.decode(value))
            elif kind == INSTANCE:
                self._put_instance(key, _read_instance(value))
        except (msgspec.DecodeError, UnicodeError) as err:
            raise StoreError(f"{kind} {key} cannot be read: {err}") from err

    def delete(self, kind: str, key: str) -> None:
        """Remove a row; idempotent."""
        if kind == NODE:
            self._drop_node(key)
        elif kind == INSTANCE:
            self._drop_instance(key)
        elif kind == GROUP:
            self.groups.pop(key, None)

    def _put_node(self, uuid: str, node: NodeFacts) -> None:
        self._drop_node(uuid)
        self.nodes[uuid] = node
        self.node_names[node.name] = uuid

    def _drop_node(self, uuid: str) -> None:
        node = self.nodes.pop(uuid, None)
        if node is not None and self.node_names.get(node.name) == uuid:
            del self.node_names[node.name]

    def _put_instance(self, uuid: str, instance: InstanceFacts) -> None:
        self._drop_instance(uuid)
        addresses = tuple(
            (_wire_of(nic, instance.primary_node), nic.ip) for nic in instance.nics if nic.ip
        )
        entry = InstanceEntry(
            instance.name,
            instance.primary_node,
            instance.secondary_nodes,
            addresses,
            msgspec.json.encode(instance),
        )
        self.instances[uuid] = entry
        self.instance_names[entry.name] = uuid
        for node in (entry.primary_node, *entry.secondary_nodes):
            self._by_node.setdefault(node, set()).add(uuid)
        for wire, ip in addresses:
            self._by_address.setdefault(ip, set()).add(uuid)
            count = self._by_wire.setdefault(wire, {})
            count[ip] = count.get(ip, 0) + 1

    def _drop_instance(self, uuid: str) -> None:
        entry = self.instances.pop(uuid, None)
        if entry is None:
            return
        if self.instance_names.get(entry.name) == uuid:
            del self.instance_names[entry.name]
        for node in (entry.primary_node, *entry.secondary_nodes):
            self._by_node.get(node, set()).discard(uuid)
        for wire, ip in entry.addresses:
            self._by_address.get(ip, set()).discard(uuid)
            if not self._by_address.get(ip):
                self._by_address.pop(ip, None)
            count = self._by_wire[wire]
            count[ip] -= 1
            if not count[ip]:
                del count[ip]
            if not count:
                del self._by_wire[wire]

    # Queries

    def role(self, node: NodeFacts) -> NodeRole:
        """Return the role of a node; the master role comes first, then missing capabilities (S61)."""
        if self.cluster is not None and node.uuid == self.cluster.master_node:
            return NodeRole.MASTER
        if node.offline:
            return NodeRole.OFFLINE
        if node.drained:
            return NodeRole.DRAINED
        return NodeRole.CANDIDATE if node.master_candidate else NodeRole.REGULAR

    def node(self, text: str) -> NodeFacts | None:
        """Return the node of this name or UUID."""
        return self.nodes.get(self.node_names.get(text, text))

    def instance(self, text: str) -> InstanceEntry | None:
        """Return the instance of this name or UUID."""
        return self.instances.get(self.instance_names.get(text, text))

    def instances_of(self, node: str) -> list[InstanceEntry]:
        """Return the instances that have a node as primary or secondary, by name."""
        found = (self.instances[uuid] for uuid in self._by_node.get(node, ()))
        return sorted(found, key=lambda entry: entry.name)

    def addresses(self, link: str) -> list[str]:
        """Return the addresses of instances at a link, explicit or by default; sorted."""
        found = (known for wire, known in self._by_wire.items() if self.link_of(wire) == link)
        return sorted({ip for known in found for ip in known})

    def instance_at(self, link: str, ip: str) -> InstanceEntry | None:
        """Return the instance with this address at this link.

        The first by name if several networks have that link.
        """
        found = (
            entry
            for entry in map(self.instances.__getitem__, self._by_address.get(ip, ()))
            for wire, own in entry.addresses
            if own == ip and self.link_of(wire) == link
        )
        return min(found, key=lambda entry: entry.name, default=None)

    def link_of(self, wire: Wire) -> str:
        """Return the link of an interface: its network's in the group of the primary node, or its own."""
        link = wire.link
        if wire.network:
            node = self.nodes.get(wire.node)
            group = self.groups.get(node.group) if node is not None else None
            params = group.networks.get(wire.network, {}) if group is not None else {}
            link = str(params.get("link") or "")
        return link or (self.cluster.default_link if self.cluster is not None else "")

    def nodes_by_name(self) -> Iterable[NodeFacts]:
        return sorted(self.nodes.values(), key=lambda node: node.name)


def _wire_of(nic: NicFacts, primary_node: str) -> Wire:
    if nic.network:
        return Wire(network=intern(nic.network), node=intern(primary_node))
    return Wire(link=intern(str(nic.nicparams.get("link") or "")))
