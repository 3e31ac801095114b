"""The configuration at one position, for readers: immutable, and never half a change."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeVar

from ganeti.config.index import Index, index_of
from ganeti.config.kinds import entry_of, tables_of
from ganeti.config.view import Tables, View
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup
from ganeti.model.stored import Stored

REMEMBERED = 100
"""Of so many changes before a snapshot it is known what they changed."""
_numbers = count()


T = TypeVar("T")


class Change(NamedTuple):
    """One step from a snapshot to the next one; the number is unique in this process."""

    number: int
    uuids: frozenset[str]


def _first() -> tuple[Change, ...]:
    return (Change(next(_numbers), frozenset()),)


@dataclass(frozen=True)
class Snapshot(View):
    """The configuration at `position`, which is one integer (R1); its mappings never change."""

    position: int
    cluster: Cluster
    tables: Tables
    index: Index = field(default_factory=Index, repr=False, compare=False)
    changes: tuple[Change, ...] = field(default_factory=_first, repr=False, compare=False)
    """The last changes that led to it, the latest one last."""

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

    def changes_and(self, uuids: Iterable[str]) -> tuple[Change, ...]:
        """Return the changes of the next snapshot, in which these objects are others."""
        return (*self.changes[1 - REMEMBERED :], Change(next(_numbers), frozenset(uuids)))

    def changed_since(self, former: "Snapshot") -> frozenset[str] | None:
        """Return the UUIDs of all objects that may differ from an earlier snapshot; None: it is too old to tell."""
        last, found = former.changes[-1].number, set[str]()
        for change in reversed(self.changes):
            if change.number == last:
                return frozenset(found)
            found |= change.uuids
        return None


def differing(old: Mapping[str, T], new: Mapping[str, T]) -> Collection[str]:
    """Return the keys whose objects are not the same in both, in an order that is the same in each process."""
    if old is new:
        return ()
    found = [key for key, one in new.items() if old.get(key) is not one]
    added = sum(key not in old for key in found)
    if len(old) + added > len(new):
        found += sorted(old.keys() - new.keys())
    return found


def differing_instances(old: Snapshot | None, new: Snapshot) -> Collection[str]:
    """Return the UUIDs of the instances that are not the same in both, without a look at all of them if possible."""
    changed = None if old is None else new.changed_since(old)
    if old is None or changed is None:
        return differing({} if old is None else old.instances, new.instances)
    before, now = old.instances, new.instances
    return [uuid for uuid in sorted(changed) if before.get(uuid) is not now.get(uuid)]
