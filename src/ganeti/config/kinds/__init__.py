"""The kinds of objects that a configuration has, each declared in a module of its own.

A new kind is a struct (`Stored`), a module here with its `Kind`, and a row in `KINDS`.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.identifiers import is_uuid
from ganeti.config.index import Entry
from ganeti.config.kinds.backup_key import BACKUP_KEY
from ganeti.config.kinds.backup_schedule import BACKUP_RUN, BACKUP_SCHEDULE
from ganeti.config.kinds.cluster import CLUSTER
from ganeti.config.kinds.detached_disk import DETACHED_DISK
from ganeti.config.kinds.group import GROUP
from ganeti.config.kinds.image import IMAGE
from ganeti.config.kinds.instance import INSTANCE
from ganeti.config.kinds.job_filter import JOB_FILTER
from ganeti.config.kinds.kind import Kind, Problem
from ganeti.config.kinds.network import NETWORK
from ganeti.config.kinds.node import NODE
from ganeti.config.kinds.webhook import WEBHOOK, WEBHOOK_STATE
from ganeti.config.view import View
from ganeti.model.objects import Cluster
from ganeti.model.stored import Stored

T = TypeVar("T", bound=Stored)

_ALL = (
    CLUSTER,
    NETWORK,
    GROUP,
    NODE,
    INSTANCE,
    DETACHED_DISK,
    IMAGE,
    JOB_FILTER,
    BACKUP_SCHEDULE,
    BACKUP_RUN,
    WEBHOOK,
    WEBHOOK_STATE,
    BACKUP_KEY,
)
KINDS: dict[type[Stored], Kind] = {kind.type: kind for kind in _ALL}


def kind_of(thing: Stored) -> str:
    """Return the kind of the object's row; it is also the word in errors."""
    return KINDS[type(thing)].name


def kind_named(name: str) -> Kind | None:
    """Return the kind of that name."""
    return next((kind for kind in KINDS.values() if kind.name == name), None)


def tables_of(things: Iterable[Stored]) -> dict[type[Stored], dict[str, Stored]]:
    """Return objects by type and UUID."""
    tables: dict[type[Stored], dict[str, Stored]] = {kind: {} for kind in KINDS}
    for thing in things:
        tables[type(thing)][thing.uuid] = thing
    return tables


def entry_of(cluster: Cluster, thing: Stored) -> Entry:
    """Return the index entry of an object."""
    kind = KINDS[type(thing)]
    return Entry(thing.uuid, tuple(kind.claims(cluster, thing)), kind.nodes(thing))


def merged(current: T, stale: T) -> T:
    """Return a version that was read before the current one, with what recovery has committed meanwhile."""
    found: T = KINDS[type(current)].merged(current, stale)
    return found


def problems_of(view: View, thing: Stored) -> Iterator[Problem]:
    """Return the problems of one object, for `gnt-cluster verify` as well as for a change.

    The index checks that no two objects share a name, address or file.
    """
    if not is_uuid(thing.uuid):
        yield ErrorCode.WRONG_INPUT, f"{thing.name}: {thing.uuid!r} is not a UUID"
    yield from KINDS[type(thing)].problems(view, thing)


def check_object(view: View, thing: Stored) -> None:
    """Raise PrereqError for the first problem of an object."""
    for code, text in problems_of(view, thing):
        raise PrereqError(text, code)


def check_removal(view: View, thing: Stored) -> None:
    """Raise PrereqError if something still refers to a removed object."""
    for code, text in KINDS[type(thing)].references(view, thing):
        raise PrereqError(text, code)
