"""The read access to a configuration, acknowledged or draft."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti.config.index import Index
from ganeti.model.objects import (
    Cluster,
    DetachedDisk,
    Disk,
    Image,
    Instance,
    Network,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.stored import Stored

T = TypeVar("T", bound=Stored)

Tables = Mapping[type[Stored], Mapping[str, Any]]
"""Type -> UUID -> object of that type, in the order of `ganeti.config.kinds`."""


class View:
    """Reading a configuration; mappings are by UUID."""

    if TYPE_CHECKING:  # at run time a property would be mistaken for the default of a field

        @property
        def position(self) -> int: ...
        @property
        def cluster(self) -> Cluster: ...
        @property
        def tables(self) -> Tables: ...
        @property
        def index(self) -> Index: ...

    def table(self, kind: type[T]) -> Mapping[str, T]:
        """Return all objects of a kind. The properties below do the same without a call: a job reads them 200 times."""
        return self.tables.get(kind, {})

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.tables.get(Node, {})

    @property
    def groups(self) -> Mapping[str, NodeGroup]:
        return self.tables.get(NodeGroup, {})

    @property
    def instances(self) -> Mapping[str, Instance]:
        return self.tables.get(Instance, {})

    @property
    def networks(self) -> Mapping[str, Network]:
        return self.tables.get(Network, {})

    @property
    def images(self) -> Mapping[str, Image]:
        return self.tables.get(Image, {})

    def find(self, uuid: str) -> Stored | None:
        """Return the object of this UUID, of any kind."""
        found = (table[uuid] for table in self.tables.values() if uuid in table)
        return next(found, None)

    def node_by_name(self, name: str) -> Node | None:
        """Return the node with exactly this name."""
        uuid = self.index.owner("host name", name)
        return None if uuid is None else self.nodes.get(uuid)

    def instance_by_name(self, name: str) -> Instance | None:
        """Return the instance with exactly this name."""
        uuid = self.index.owner("host name", name)
        return None if uuid is None else self.instances.get(uuid)

    def group_by_name(self, name: str) -> NodeGroup | None:
        """Return the node group with exactly this name."""
        uuid = self.index.owner("group name", name)
        return None if uuid is None else self.groups.get(uuid)

    def network_by_name(self, name: str) -> Network | None:
        """Return the network with exactly this name."""
        uuid = self.index.owner("network name", name)
        return None if uuid is None else self.networks.get(uuid)

    def image_by_name(self, name: str) -> Image | None:
        """Return the image with exactly this name."""
        uuid = self.index.owner("image name", name)
        return None if uuid is None else self.images.get(uuid)

    def instances_on(self, node_uuid: str) -> list[Instance]:
        """Return the instances whose primary node this is, by name."""
        return [one for one in self.instances_of(node_uuid) if one.primary_node == node_uuid]

    def instances_of(self, node_uuid: str) -> list[Instance]:
        """Return the instances that have the node as primary or secondary, by name."""
        found = (self.instances[uuid] for uuid in self.index.instances_of(node_uuid))
        return sorted(found, key=lambda instance: instance.name)

    def moved_away_from(self, node: Node) -> list[Instance]:
        """Return the instances that left a node for its maintenance and have not returned, by name."""
        found = (self.instances.get(uuid) for uuid in node.moved_away)
        away = [one for one in found if one is not None and one.primary_node != node.uuid]
        return sorted(away, key=lambda instance: instance.name)

    def nodes_by_name(self) -> list[Node]:
        """Return all nodes, by name."""
        return sorted(self.nodes.values(), key=lambda node: node.name)

    def online_nodes(self) -> list[Node]:
        """Return the nodes that are not marked offline, by name."""
        return [node for node in self.nodes_by_name() if not node.offline]

    def master_candidates(self) -> list[Node]:
        """Return the nodes that may hold the state, by name."""
        found = (node for node in self.nodes.values() if node.master_candidate)
        return sorted(found, key=lambda node: node.name)

    def all_disks(self) -> Iterator[tuple[Disk, tuple[NodeUuid, ...]]]:
        """Yield each disk, attached or not, with its nodes, or all nodes that may use a shared one; also the memory of snapshots."""
        for instance in self.instances.values():
            for disk in (*instance.disks, *instance.memory_disks):
                yield disk, instance.all_nodes
        for detached in self.table(DetachedDisk).values():
            yield detached.disk, detached.nodes

    def objects(self) -> Iterator[Stored]:
        """Return all objects."""
        for table in self.tables.values():
            yield from table.values()
