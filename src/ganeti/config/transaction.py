"""A change of the configuration while it is being made."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import ConfigurationError, ErrorCode, PrereqError
from ganeti.config.index import Conflict, Index, IndexDraft, index_of
from ganeti.config.invariants import check_object, check_removal
from ganeti.config.snapshot import Snapshot, View
from ganeti.model import wire
from ganeti.model.objects import Cluster, ConfigObject, Instance, Node, NodeGroup
from ganeti.store.interface import Delete, Operation, Put

Object = TypeVar("Object", bound=Cluster | Node | NodeGroup | Instance)

_KIND_OF: dict[type[ConfigObject], str] = {
    Cluster: "cluster",
    Node: "node",
    NodeGroup: "group",
    Instance: "instance",
}


def kind_of(thing: ConfigObject) -> str:
    """The kind of row that the object is stored as; also the word for it in an error."""
    return _KIND_OF[type(thing)]


def put_row(thing: ConfigObject) -> Put:
    """The row of an object, under its UUID."""
    return Put(kind_of(thing), thing.uuid, wire.encode(thing))


class Draft(View):
    """The pending configuration and the changes made to it so far; read it like a snapshot.

    What was read before a change shows the state before it.
    """

    def __init__(self, base: Snapshot, clock: Clock) -> None:
        self._base = base
        self._now = clock.time()
        self._cluster = base.cluster
        self._nodes = base.nodes
        self._groups = base.groups
        self._instances = base.instances
        self._index = IndexDraft(base.index)
        self._changed: dict[str, ConfigObject] = {}
        self._removed: dict[str, ConfigObject] = {}

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    @property
    def groups(self) -> Mapping[str, NodeGroup]:
        return self._groups

    @property
    def instances(self) -> Mapping[str, Instance]:
        return self._instances

    @property
    def index(self) -> Index:
        return self._index

    def put(self, thing: Object) -> Object:
        """Add or replace an object, and return it with its new serial number and times.

        PrereqError if it claims a name, address or file that another object has.
        """
        old = self._find(thing)
        stamped = msgspec.structs.replace(
            thing,
            serial_no=1 if old is None else old.serial_no + 1,
            ctime=(thing.ctime or self._now) if old is None else old.ctime,
            mtime=self._now,
        )
        if isinstance(stamped, Cluster):
            self._put_cluster(stamped)
        else:
            conflict = self._index.replace(self._cluster, _claimable(old), stamped)
            if conflict is not None:
                raise self._taken(stamped, conflict)
            self._store(stamped)
        self._changed[stamped.uuid] = stamped
        self._removed.pop(stamped.uuid, None)
        return stamped

    def remove(self, thing: ConfigObject) -> None:
        """Take an object out; ConfigurationError if it is not there."""
        old = self._find(thing)
        if old is None or isinstance(old, Cluster):
            raise ConfigurationError(
                f"{kind_of(thing)} {thing.name} ({thing.uuid}) cannot be removed:"
                " it is not in the configuration any more"
            )
        self._index.replace(self._cluster, old, None)
        if isinstance(old, Node):
            self._nodes = _without(self._nodes, old.uuid)
        elif isinstance(old, NodeGroup):
            self._groups = _without(self._groups, old.uuid)
        else:
            self._instances = _without(self._instances, old.uuid)
        self._changed.pop(old.uuid, None)
        self._removed[old.uuid] = old

    def finish(self) -> tuple[Snapshot, list[Operation]]:
        """The next configuration and the rows that make it; PrereqError if a rule is broken."""
        for thing in self._changed.values():
            check_object(self, thing)
        for thing in self._removed.values():
            check_removal(self, thing)
        operations: list[Operation] = [put_row(thing) for thing in self._changed.values()]
        operations += [Delete(kind_of(thing), uuid) for uuid, thing in self._removed.items()]
        if not operations:
            return self._base, operations
        snapshot = Snapshot(
            self._base.position,
            self._cluster,
            self._nodes,
            self._groups,
            self._instances,
            self._index.finished(),
        )
        return snapshot, operations

    def _find(self, thing: ConfigObject) -> ConfigObject | None:
        if isinstance(thing, Cluster):
            return self._cluster if thing.uuid == self._cluster.uuid else None
        if isinstance(thing, Node):
            return self._nodes.get(thing.uuid)
        if isinstance(thing, NodeGroup):
            return self._groups.get(thing.uuid)
        return self._instances.get(thing.uuid)

    def _put_cluster(self, cluster: Cluster) -> None:
        if cluster.uuid != self._cluster.uuid:
            raise ConfigurationError("there is one cluster, and its UUID never changes (S88)")
        moved = cluster.nicparams != self._cluster.nicparams
        self._cluster = cluster
        if moved:  # links of all NICs may be others now
            index, conflicts = index_of(
                cluster, self._nodes.values(), self._groups.values(), self._instances.values()
            )
            for thing, conflict in conflicts:
                raise self._taken(thing, conflict)
            self._index = IndexDraft(index)

    def _store(self, thing: Node | NodeGroup | Instance) -> None:
        if isinstance(thing, Node):
            self._nodes = {**self._nodes, thing.uuid: thing}
        elif isinstance(thing, NodeGroup):
            self._groups = {**self._groups, thing.uuid: thing}
        else:
            self._instances = {**self._instances, thing.uuid: thing}

    def _taken(self, thing: ConfigObject, conflict: Conflict) -> PrereqError:
        (what, value), uuid = conflict
        owner = self._nodes.get(uuid) or self._instances.get(uuid) or self._groups.get(uuid)
        who = f"{kind_of(owner)} {owner.name}" if owner and uuid != thing.uuid else "itself, twice"
        code = ErrorCode.EXISTS if what.endswith("name") else ErrorCode.NOT_UNIQUE
        return PrereqError(
            f"{kind_of(thing)} {thing.name}: the {what} {value} is already used by {who}", code
        )


def _claimable(thing: ConfigObject | None) -> Node | NodeGroup | Instance | None:
    return None if isinstance(thing, Cluster) else thing


def _without(mapping: Mapping[str, Object], uuid: str) -> dict[str, Object]:
    copy = dict(mapping)
    del copy[uuid]
    return copy
