"""A change of the configuration in progress."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import ConfigurationError, ErrorCode, PrereqError
from ganeti.config.changes import ChangedObject
from ganeti.config.index import NOTHING, Conflict, Entry, Index, IndexDraft, index_of
from ganeti.config.kinds import check_object, check_removal, entry_of, kind_of, merged
from ganeti.config.snapshot import Snapshot
from ganeti.config.view import Tables, View
from ganeti.model import wire
from ganeti.model.objects import Cluster
from ganeti.model.stored import Stored
from ganeti.store.interface import Delete, Operation, Put

T = TypeVar("T", bound=Stored)


def put_row(thing: Stored) -> Put:
    """Return the row of an object, under its UUID."""
    return Put(kind_of(thing), thing.uuid, wire.encode(thing))


class Draft(View):
    """The pending configuration and the changes made so far; read it like a snapshot.

    Objects read before a change show the state before it.
    """

    def __init__(self, base: Snapshot, clock: Clock, epoch: int = 0) -> None:
        self.epoch = epoch
        """Of the master that makes the change."""
        self._base = base
        self._now = clock.time()
        self._cluster = base.cluster
        self._tables: dict[type[Stored], Any] = dict(base.tables)
        self._changes: dict[type[Stored], _ChangedTable] = {}
        self._index = IndexDraft(base.index)
        self._changed: dict[str, Stored] = {}
        self._removed: dict[str, Stored] = {}

    @property
    def position(self) -> int:
        """Return the position before the change."""
        return self._base.position

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def tables(self) -> Tables:
        return self._tables

    @property
    def index(self) -> Index:
        return self._index

    def put(self, thing: T) -> T:
        """Add or replace an object, and return it with its new serial number and times.

        A version that was read before the present one keeps the present rows of recovery and grants of disks, because
        the master commits these without the locks of jobs. PrereqError if it claims a name, address or file that
        another object has.
        """
        table = self.table(type(thing))
        old = table.get(thing.uuid)
        if old is not None and thing.serial_no != old.serial_no:
            thing = merged(old, thing)
        stamped = msgspec.structs.replace(
            thing,
            serial_no=1 if old is None else old.serial_no + 1,
            ctime=(thing.ctime or self._now) if old is None else old.ctime,
            mtime=self._now,
        )
        if isinstance(stamped, Cluster):
            self._put_cluster(stamped)
        conflict = self._index.replace(self._entry(old), self._entry(stamped))
        if conflict is not None:
            raise self._taken(stamped, conflict)
        self._writable(type(thing))[stamped.uuid] = stamped
        self._changed[stamped.uuid] = stamped
        self._removed.pop(stamped.uuid, None)
        return stamped

    def remove(self, thing: Stored) -> None:
        """Remove an object; ConfigurationError if it does not exist."""
        old = self.table(type(thing)).get(thing.uuid)
        if old is None or isinstance(old, Cluster):
            raise ConfigurationError(
                f"{kind_of(thing)} {thing.name} ({thing.uuid}) cannot be removed: it is no "
                "longer in the configuration"
            )
        self._index.replace(self._entry(old), NOTHING)
        del self._writable(type(thing))[old.uuid]
        self._changed.pop(old.uuid, None)
        self._removed[old.uuid] = old

    def check(self) -> None:
        """Raise PrereqError if a rule is broken."""
        for thing in self._changed.values():
            check_object(self, thing)
        for thing in self._removed.values():
            check_removal(self, thing)

    def finish(self) -> tuple[Snapshot, list[Operation]]:
        """Return the next configuration and the rows that make it; PrereqError if a rule is broken."""
        self.check()
        operations: list[Operation] = [put_row(thing) for thing in self._changed.values()]
        for uuid, thing in self._removed.items():
            # The log includes the old content of a removed object, so that later readers can name
            # it.
            operations += (put_row(thing), Delete(kind_of(thing), uuid))
        if not operations:
            return self._base, operations
        changes = self._base.changes_and((*self._changed, *self._removed))
        written = {kind: table.merged() for kind, table in self._changes.items()}
        tables, index = {**self._tables, **written}, self._index.finished()
        snapshot = Snapshot(self._base.position, self._cluster, tables, index, changes)
        return snapshot, operations

    def changed_objects(self) -> list[ChangedObject]:
        """Return each changed object, before and after."""
        touched = [(thing, thing) for thing in self._changed.values()]
        gone = [(thing, None) for thing in self._removed.values()]
        found = (
            (self._base.table(type(one)).get(one.uuid), after) for one, after in (*touched, *gone)
        )
        return [ChangedObject(before, after) for before, after in found if before or after]

    def _writable(self, kind: type[Stored]) -> "_ChangedTable":
        """Return a table that is this draft's own."""
        if kind not in self._changes:
            table = _ChangedTable(self._tables.get(kind, {}))
            self._tables[kind] = self._changes[kind] = table
        return self._changes[kind]

    def _entry(self, thing: Stored | None) -> Entry:
        return NOTHING if thing is None else entry_of(self._cluster, thing)

    def _put_cluster(self, cluster: Cluster) -> None:
        if cluster.uuid != self._cluster.uuid:
            raise ConfigurationError(
                "a cluster has exactly one cluster object, and its UUID never changes (S88)"
            )
        moved = cluster.nicparams != self._cluster.nicparams
        self._cluster = cluster
        if moved:  # links of all NICs may have changed
            index, conflicts = index_of(self._entry(thing) for thing in self.objects())
            for conflict in conflicts:
                raise self._taken(self.find(conflict.claimant) or cluster, conflict)
            self._index = IndexDraft(index)

    def _taken(self, thing: Stored, conflict: Conflict) -> PrereqError:
        what, value = conflict.claim
        owner = None if conflict.owner == thing.uuid else self.find(conflict.owner)
        who = f"{kind_of(owner)} {owner.name}" if owner else "itself, twice"
        code = ErrorCode.EXISTS if what.endswith("name") else ErrorCode.NOT_UNIQUE
        return PrereqError(
            f"{kind_of(thing)} {thing.name}: the {what} {value} is already used by {who}", code
        )


class _ChangedTable(Mapping[str, Any]):
    """A table with the changes of a draft beside it: drafts that only check a change never copy a large table."""

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = base
        self._put: dict[str, Any] = {}
        self._gone: set[str] = set()

    def __getitem__(self, uuid: str) -> Any:
        if uuid in self._put:
            return self._put[uuid]
        if uuid in self._gone:
            raise KeyError(uuid)
        return self._base[uuid]

    def __setitem__(self, uuid: str, thing: Any) -> None:
        self._put[uuid] = thing
        self._gone.discard(uuid)

    def __delitem__(self, uuid: str) -> None:
        self._put.pop(uuid, None)
        if uuid in self._base:
            self._gone.add(uuid)

    def __iter__(self) -> Iterator[str]:
        return iter(self.merged())

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._put.keys() - self._base.keys())

    def merged(self) -> dict[str, Any]:
        """Return the table with the changes."""
        table = {**self._base, **self._put}
        for uuid in self._gone:
            del table[uuid]
        return table

    def values(self) -> ValuesView[Any]:
        return self.merged().values()

    def items(self) -> ItemsView[str, Any]:
        return self.merged().items()
