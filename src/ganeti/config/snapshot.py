"""The configuration at one position, for readers: immutable, and never half a change."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ganeti.config.index import Index, index_of
from ganeti.config.kinds import entry_of, tables_of
from ganeti.config.view import Tables, View
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup
from ganeti.model.stored import Stored


@dataclass(frozen=True)
class Snapshot(View):
    """The configuration at `position`, which is one integer (R1); its mappings never change."""

    position: int
    cluster: Cluster
    tables: Tables
    index: Index = field(default_factory=Index, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.index.is_empty:
            index, _ = index_of(entry_of(self.cluster, thing) for thing in self.objects())
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
        others: Iterable[Stored] = (),
    ) -> "Snapshot":
        """Return a snapshot of these objects."""
        return cls(position, cluster, tables_of([cluster, *groups, *nodes, *instances, *others]))
