"""The objects that can have tags, and the limit of tags."""

from collections.abc import Callable, Collection, Iterator

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.kinds import kind_of
from ganeti.config.resolve import resolve_group, resolve_instance, resolve_network, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.view import View
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.limits import MAX_TAGS
from ganeti.model.objects import Cluster, Instance, Network, Node, NodeGroup
from ganeti.model.stored import Stored

KINDS = ("cluster", "node", "nodegroup", "instance", "network")

_Resolve = Callable[[View, str], Stored]
_OF_KIND: dict[str, _Resolve] = {
    "node": resolve_node,
    "instance": resolve_instance,
    "nodegroup": resolve_group,
    "network": resolve_network,
}


_LEVELS = {Node: Level.NODE, NodeGroup: Level.NODE_GROUP, Network: Level.NETWORK}


def tagged_object(view: View, kind: str, name: str | None) -> Stored:
    """Return the object of a request about tags; PrereqError if it does not exist."""
    if kind not in KINDS:
        raise InputError(f"{kind!r:.40} must be one of {', '.join(KINDS)}", "kind")
    if kind == "cluster":
        return view.cluster
    if not name:
        raise InputError(f"must be the name of the {kind}", "name")
    return _OF_KIND[kind](view, name)


def same_object(view: View, thing: Stored) -> Stored:
    """Return the object in `view`; PrereqError if it was removed."""
    current = view.find(thing.uuid)
    if current is None:
        raise PrereqError(
            f"{kind_of(thing)} {thing.name} was removed meanwhile", ErrorCode.UNKNOWN_ENTITY
        )
    return current


def lock_of(thing: Stored, mode: Mode = Mode.EXCLUSIVE) -> list[LockRequest]:
    """Return the lock of the object; the cluster's tags need none, they change in one step."""
    if isinstance(thing, Cluster):
        return []
    if isinstance(thing, Instance):
        return [lock(Level.INSTANCE, thing.name, mode)]
    return [lock(_LEVELS[type(thing)], thing.uuid, mode)]


def with_tags(thing: Stored, new: Collection[str]) -> tuple[str, ...]:
    """Return the object's tags and the new ones, sorted; PrereqError if they are too many."""
    together = tuple(sorted({*thing.tags, *new}))
    if len(together) > MAX_TAGS:
        raise PrereqError(
            f"{kind_of(thing)} {thing.name} would have {len(together)} tags: at most {MAX_TAGS} are possible",
            ErrorCode.WRONG_INPUT,
        )
    return together


def without_tags(thing: Stored, gone: Collection[str]) -> tuple[str, ...]:
    """Return the object's other tags; PrereqError if a tag to remove does not exist."""
    missing = sorted(set(gone) - set(thing.tags))
    if missing:
        raise PrereqError(
            f"{kind_of(thing)} {thing.name} does not have the tags {', '.join(missing)}",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return tuple(tag for tag in thing.tags if tag not in set(gone))


def tag_paths(snapshot: Snapshot) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every object with its path in the results of a search for tags."""
    yield "/cluster", snapshot.cluster.tags
    for group in sorted(snapshot.groups.values(), key=lambda one: one.name):
        yield f"/nodegroup/{group.name}", group.tags
    for network in sorted(snapshot.networks.values(), key=lambda one: one.name):
        yield f"/networks/{network.name}", network.tags
    for node in snapshot.nodes_by_name():
        yield f"/nodes/{node.name}", node.tags
    for instance in sorted(snapshot.instances.values(), key=lambda one: one.name):
        yield f"/instances/{instance.name}", instance.tags
