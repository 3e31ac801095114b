"""The configuration at one position, as readers see it: immutable, and never half a change."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ganeti.config.index import Index, index_of
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup


class View:
    """What can be asked of a configuration, be it acknowledged or a draft; mappings are by UUID."""

    if TYPE_CHECKING:  # at run time a property would be taken for the default of a field

        @property
        def cluster(self) -> Cluster: ...
        @property
        def nodes(self) -> Mapping[str, Node]: ...
        @property
        def groups(self) -> Mapping[str, NodeGroup]: ...
        @property
        def instances(self) -> Mapping[str, Instance]: ...
        @property
        def index(self) -> Index: ...

    def node_by_name(self, name: str) -> Node | None:
        """The node with exactly this name."""
        uuid = self.index.owner("host name", name)
        return None if uuid is None else self.nodes.get(uuid)

    def instance_by_name(self, name: str) -> Instance | None:
        """The instance with exactly this name."""
        uuid = self.index.owner("host name", name)
        return None if uuid is None else self.instances.get(uuid)

    def group_by_name(self, name: str) -> NodeGroup | None:
        """The node group with exactly this name."""
        uuid = self.index.owner("group name", name)
        return None if uuid is None else self.groups.get(uuid)

    def instances_on(self, node_uuid: str) -> list[Instance]:
        """The instances whose primary node this is, by name."""
        return [one for one in self.instances_of(node_uuid) if one.primary_node == node_uuid]

    def instances_of(self, node_uuid: str) -> list[Instance]:
        """The instances that have the node as primary or secondary, by name."""
        found = (self.instances[uuid] for uuid in self.index.instances_of(node_uuid))
        return sorted(found, key=lambda instance: instance.name)

    def nodes_by_name(self) -> list[Node]:
        """All nodes, by name."""
        return sorted(self.nodes.values(), key=lambda node: node.name)

    def online_nodes(self) -> list[Node]:
        """The nodes that are not marked offline, by name."""
        return [node for node in self.nodes_by_name() if not node.offline]

    def master_candidates(self) -> list[Node]:
        """The nodes that may hold the state, by name."""
        return [node for node in self.nodes_by_name() if node.master_candidate]

    def objects(self) -> Iterator[Cluster | Node | NodeGroup | Instance]:
        """Everything there is."""
        yield self.cluster
        yield from self.groups.values()
        yield from self.nodes.values()
        yield from self.instances.values()


@dataclass(frozen=True)
class Snapshot(View):
    """The configuration at `position`, which is one integer (R1); its mappings never change."""

    position: int
    cluster: Cluster
    nodes: Mapping[str, Node]
    groups: Mapping[str, NodeGroup]
    instances: Mapping[str, Instance]
    index: Index = field(default_factory=Index, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.index.is_empty:
            index, _ = index_of(
                self.cluster, self.nodes.values(), self.groups.values(), self.instances.values()
            )
            object.__setattr__(self, "index", index)

    @classmethod
    def of(
        cls,
        position: int,
        cluster: Cluster,
        *,
        nodes: Iterable[Node] = (),
        groups: Iterable[NodeGroup] = (),
        instances: Iterable[Instance] = (),
    ) -> "Snapshot":
        """A snapshot of these objects."""
        return cls(
            position,
            cluster,
            {node.uuid: node for node in nodes},
            {group.uuid: group for group in groups},
            {instance.uuid: instance for instance in instances},
        )
