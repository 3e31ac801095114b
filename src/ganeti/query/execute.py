"""Runs queries: rows that pass the filter, as columns of `[status, value]`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.base.suggestions import did_you_mean
from ganeti.base.threads_first import threads_first
from ganeti.config.resolve import (
    resolve_backup_key,
    resolve_filter,
    resolve_group,
    resolve_image,
    resolve_instance,
    resolve_network,
    resolve_node,
    resolve_schedule,
    resolve_webhook,
)
from ganeti.config.snapshot import Snapshot
from ganeti.locking.manager import LockInfo
from ganeti.model.backup_key import BackupKey
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.job_filter import JobFilter
from ganeti.model.names import ResultStatus
from ganeti.model.objects import Image, Instance, Network, Node, NodeGroup
from ganeti.model.stored import Stored
from ganeti.model.webhook import Webhook
from ganeti.query.context import JobRow, QueryContext
from ganeti.query.fields.backup import BACKUP_FIELDS, backup_rows
from ganeti.query.fields.backup_key import BACKUP_KEY_FIELDS, BackupKeyRow
from ganeti.query.fields.cluster import CLUSTER_FIELDS
from ganeti.query.fields.export import EXPORT_FIELDS, export_rows
from ganeti.query.fields.extstorage import EXTSTORAGE_FIELDS, extstorage_rows
from ganeti.query.fields.field import Field, Missing, Need, ValueKind
from ganeti.query.fields.group import GROUP_FIELDS, GroupRow
from ganeti.query.fields.image import IMAGE_FIELDS, ImageRow
from ganeti.query.fields.instance import INSTANCE_FIELDS
from ganeti.query.fields.instance_row import InstanceRow
from ganeti.query.fields.job import JOB_FIELDS, JobContext
from ganeti.query.fields.job_filter import FILTER_FIELDS
from ganeti.query.fields.lock import LOCK_FIELDS
from ganeti.query.fields.network import NETWORK_FIELDS, NetworkRow
from ganeti.query.fields.node import NODE_FIELDS, NodeRow
from ganeti.query.fields.os import OS_FIELDS, os_rows
from ganeti.query.fields.schedule import SCHEDULE_FIELDS, ScheduleRow
from ganeti.query.fields.webhook import WEBHOOK_FIELDS, WebhookRow
from ganeti.query.filter import EVERYTHING, CompiledFilter, compile_filter, listed_values
from ganeti.query.live import LiveSource
from ganeti.query.ordered import OrderedTables

FIELDS_LIMIT = 1_000
NAMES_AT_ONCE = 4
"""A query with more names than this is split over turns of the event loop."""
PLANS_KEPT = 256
SLICE = 12
"""Rows per turn of the event loop, of all large queries together: less than a millisecond."""
ARCHIVED_AT_ONCE = 100
"""Ids of archived jobs that are read at once."""


class JobSource(Protocol):
    """The source of jobs: the queue."""

    def ids(self) -> list[int]:
        """Return all jobs that are not archived, in order."""
        ...

    def view(self, job_id: int, /) -> JobRow | None: ...

    async def archived_view(self, job_id: int, /) -> JobRow | None: ...

    async def archived_ids(self, *, below: int | None, limit: int) -> list[int]:
        """Return the greatest ids of archived jobs below `below`, descending."""
        ...


@dataclass(frozen=True)
class ClusterFacts:
    """The facts about the cluster besides its configuration."""

    is_drained: Callable[[], bool]
    watcher_pause: Callable[[], Awaitable[float | None]]
    """The end of the watcher's pause."""


class QueryResult(NamedTuple):
    """`fields` are definitions, `data` rows of `[status, value]`."""

    fields: list[dict[str, str]]
    data: list[list[list[Any]]]

    def to_wire(self) -> dict[str, Any]:
        return {"fields": self.fields, "data": self.data}


@dataclass(frozen=True)
class Kind:
    """A kind of objects that can be listed."""

    fields: Mapping[str, Field[Any]]
    rows: Callable[[QueryContext], Iterable[Any]]
    key: str = "name"
    resolve: Callable[[Snapshot, str], Any] | None = None
    """Returns the object for an administrator's input, for queries by name."""
    table: type[Stored] | None = None
    """The type of the configured objects behind its rows, if rows have no other source."""
    row: Callable[[QueryContext, Any], Any] | None = None
    """Makes the row of such an object."""
    needs: frozenset[Need] = frozenset()
    """The data that nodes must report before there are rows."""


def _filters(context: QueryContext) -> list[JobFilter]:
    return sorted(context.snapshot.table(JobFilter).values(), key=lambda one: one.order)


def _jobs(context: QueryContext) -> list[JobContext]:
    found = sorted(context.jobs, key=lambda job: job.id)
    return [JobContext(job, job.id in context.archived) for job in found]


def _configured(
    fields: Mapping[str, Field[Any]],
    table: type[Stored],
    row: Callable[[QueryContext, Any], Any],
    resolve: Callable[[Snapshot, str], Any],
) -> Kind:
    """A kind whose rows are made of the configuration alone."""

    def rows(context: QueryContext) -> list[Any]:
        return [row(context, one) for one in context.in_order(table)]

    return Kind(fields, rows, resolve=resolve, table=table, row=row)


KINDS: Mapping[str, Kind] = {
    "instance": _configured(INSTANCE_FIELDS, Instance, InstanceRow, resolve_instance),
    "node": _configured(NODE_FIELDS, Node, NodeRow, resolve_node),
    "group": _configured(GROUP_FIELDS, NodeGroup, GroupRow, resolve_group),
    "job": Kind(JOB_FIELDS, _jobs, key="id"),
    "os": Kind(OS_FIELDS, os_rows, needs=frozenset((Need.OPERATING_SYSTEMS,))),
    "extstorage": Kind(EXTSTORAGE_FIELDS, extstorage_rows, needs=frozenset((Need.PROVIDERS,))),
    "cluster": Kind(CLUSTER_FIELDS, lambda context: (context,), key="cluster_name"),
    "lock": Kind(LOCK_FIELDS, lambda context: context.locks),
    "network": _configured(NETWORK_FIELDS, Network, NetworkRow, resolve_network),
    "image": _configured(IMAGE_FIELDS, Image, ImageRow, resolve_image),
    "backup": Kind(BACKUP_FIELDS, backup_rows, key="backup", needs=frozenset((Need.BACKUPS,))),
    "export": Kind(EXPORT_FIELDS, export_rows, key="export", needs=frozenset((Need.EXPORTS,))),
    "backup-key": _configured(BACKUP_KEY_FIELDS, BackupKey, BackupKeyRow, resolve_backup_key),
    "webhook": _configured(WEBHOOK_FIELDS, Webhook, WebhookRow, resolve_webhook),
    "schedule": _configured(SCHEDULE_FIELDS, BackupSchedule, ScheduleRow, resolve_schedule),
    "filter": Kind(FILTER_FIELDS, _filters, key="uuid", resolve=resolve_filter),
}


class _Columns(NamedTuple):
    """The columns of a query."""

    definitions: list[dict[str, str]]
    getters: tuple[Callable[[Any], Any], ...]
    needs: frozenset[Need]

    def cells(self, row: Any) -> list[list[Any]]:
        """A row of the answer."""
        return [
            [_NORMAL, value]
            if type(value := get(row)) is not Missing
            else [value.status.value, None]
            for get in self.getters
        ]


_NORMAL = ResultStatus.NORMAL.value
_UNAVAILABLE = ResultStatus.UNAVAILABLE.value
_NO_SUCH_FIELD = Missing(ResultStatus.UNKNOWN)


class QueryExecutor:
    """Answers queries about the acknowledged state; never waits for a writer."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        jobs: JobSource,
        locks: Callable[[], Sequence[LockInfo]],
        live: LiveSource,
        facts: ClusterFacts | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._jobs = jobs
        self._locks = locks
        self._live = live
        self._facts = facts
        self._ordered = OrderedTables()
        self._slices = StaggeredWaker(1)

    async def query(self, kind: str, names: Sequence[str], raw_filter: Any = None) -> QueryResult:
        """Return the rows that match the filter; an unknown field is a column of `[1, null]`."""
        found = kind_of(kind)
        columns = _columns(kind, names)
        compiled = self._compiled(found, raw_filter)
        context = await self._context(kind, compiled)
        first = (compiled.needs | found.needs) - {Need.CONSOLES}
        if first:
            context.live = await self._live.gather(context.snapshot, first)
        rows = await self._worked_on(
            found.rows(context), lambda row: row if compiled.passes(row) else None
        )
        if compiled.place is not None:
            rows.sort(key=compiled.place)
        await self._add_live(context, columns.needs, rows)
        data = await self._worked_on(rows, columns.cells)
        if kind == "job" and compiled.listed is not None:
            data = _as_listed(names, compiled.listed, [row.job.id for row in rows], data)
        if kind == "job" and "archived" in names and compiled.named is None:
            data = [*await self._archived(columns, compiled), *data]
        return QueryResult(columns.definitions, data)

    def _compiled(self, kind: Kind, raw: Any) -> CompiledFilter[Any]:
        """Compile the filter; PrereqError if it is a list of names and one of them matches nothing."""
        compiled: CompiledFilter[Any] = compile_filter(raw, kind.fields, kind.key)
        if compiled.listed is None or kind.resolve is None:
            return compiled
        objects = self._named(self._snapshot(), kind, compiled.listed)
        key_of, places = kind.fields[kind.key].value, {key: at for at, key in enumerate(objects)}
        return CompiledFilter(
            lambda row: key_of(row) in places,
            named=frozenset(places),
            place=lambda row: places[key_of(row)],
        )

    def _named(self, view: Snapshot, kind: Kind, names: Iterable[Any]) -> dict[Any, Any]:
        """Return the objects with these names by their keys, in the order of the names; PrereqError."""
        found: dict[Any, Any] = {}
        for name in map(str, names):
            meant = self._ordered.named(view, kind.table, (name,)) if kind.table else ()
            if not meant and kind.resolve is not None:
                meant = (kind.resolve(view, name),)
            for one in meant:
                found.setdefault(getattr(one, kind.key), one)
        return found

    async def _archived(
        self, columns: _Columns, compiled: CompiledFilter[Any]
    ) -> list[list[list[Any]]]:
        """Yield rows of all archived jobs, for queries that use the archive field, as in Ganeti.

        They are read one by one, so that only the shown jobs are in memory.
        """
        data: list[list[list[Any]]] = []
        below: int | None = None
        while ids := await self._jobs.archived_ids(below=below, limit=ARCHIVED_AT_ONCE):
            below = ids[-1]
            for job_id in ids:
                job = await self._jobs.archived_view(job_id)
                if job is None or self._jobs.view(job_id) is not None:
                    continue
                row = JobContext(job, is_archived=True)
                if compiled.passes(row):
                    data.append(columns.cells(row))
        return data[::-1]

    def query_at_once(self, kind: str, names: Sequence[str], raw_filter: Any) -> QueryResult | None:
        """Return the answer if the filter lists a few configured objects; None for a query that needs more."""
        found = KINDS.get(kind)
        if found is None or found.row is None:
            return None
        listed, columns = listed_values(raw_filter, found.key), _columns(kind, names)
        if listed is None or len(listed) > NAMES_AT_ONCE or columns.needs:
            return None
        context = QueryContext(self._snapshot(), ordered=self._ordered)
        objects = self._named(context.snapshot, found, listed).values()
        return QueryResult(
            columns.definitions, [columns.cells(found.row(context, one)) for one in objects]
        )

    async def config_values(self, names: Sequence[str]) -> list[Any]:
        """Return values of the cluster by the names of its fields; null for unknown or missing ones."""
        context = await self._context("cluster", EVERYTHING)
        fields = [CLUSTER_FIELDS.get(name) for name in names]
        return [None if field is None else _plain(field, context) for field in fields]

    async def values(
        self, kind: str, names: Sequence[str], field_names: Sequence[str]
    ) -> list[list[Any]]:
        """Answer in the old form: values of named objects (default: all); PrereqError for unknown names."""
        found = kind_of(kind)
        _check_count(field_names)
        fields = [known_field(found, name) for name in field_names]
        context = QueryContext(self._snapshot(), ordered=self._ordered)
        if names and found.resolve is not None:
            meant = [found.resolve(context.snapshot, name) for name in names]
            context.named = frozenset(one.name for one in meant)
            by_uuid = {found.fields["uuid"].value(row): row for row in found.rows(context)}
            rows = [by_uuid[one.uuid] for one in meant]
        else:
            rows = list(found.rows(context))
        needs = frozenset(need for field in fields for need in field.needs)
        await self._add_live(context, needs, rows)
        return await self._worked_on(rows, lambda row: [_plain(field, row) for field in fields])

    async def exports(self, names: Sequence[str]) -> dict[str, list[str] | bool]:
        """Answer in the old form: name of a node (default: all) -> its exports, or False without a report."""
        context = QueryContext(self._snapshot())
        nodes = [resolve_node(context.snapshot, name) for name in names]
        live = await self._live.gather(context.snapshot, {Need.EXPORTS})
        found: dict[str, list[str] | bool] = {}
        for node in nodes or context.snapshot.nodes.values():
            said = live.exports.get(node.uuid)
            found[node.name] = False if said is None or isinstance(said, Missing) else list(said)
        return found

    async def job_values(
        self, ids: Sequence[int], field_names: Sequence[str]
    ) -> list[list[Any] | None]:
        """Return values of jobs (default: all live ones); a job that does not exist has nulls."""
        fields = [known_field(KINDS["job"], name) for name in field_names]
        if not ids:
            return await self._worked_on(
                self._jobs.ids(), lambda job_id: self._live_row(job_id, fields)
            )
        if len(ids) <= SLICE:
            return [await self._job_values(job_id, fields) for job_id in ids]
        found: list[list[Any] | None] = []
        with threads_first():
            for number, job_id in enumerate(ids):
                if number % SLICE == 0:
                    await self._slices.turn()
                found.append(await self._job_values(job_id, fields))
        return found

    def _live_row(self, job_id: int, fields: Sequence[Field[Any]]) -> list[Any] | None:
        job = self._jobs.view(job_id)
        return None if job is None else job_row(fields, JobContext(job))

    async def _job_values(self, job_id: int, fields: Sequence[Field[Any]]) -> list[Any]:
        context = await self.find_job(job_id)
        if context is None:
            return [job_id if field.name == "id" else None for field in fields]
        return job_row(fields, context)

    async def find_job(self, job_id: int) -> JobContext | None:
        """Return a job, live or archived."""
        job = self._jobs.view(job_id)
        if job is not None:
            return JobContext(job)
        archived = await self._jobs.archived_view(job_id)
        return None if archived is None else JobContext(archived, is_archived=True)

    async def _worked_on(self, rows: Iterable[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Return `work` of each row, without None results.

        The slices of all large queries wait in one queue, so the event loop and the threads do other work between two
        slices, however many clients request everything at once.
        """
        every = list(rows)
        if len(every) <= SLICE:
            return [done for row in every if (done := work(row)) is not None]
        results = []
        with threads_first():
            for first in range(0, len(every), SLICE):
                await self._slices.turn()
                some = every[first : first + SLICE]
                results += [done for row in some if (done := work(row)) is not None]
        return results

    async def _context(self, kind: str, compiled: CompiledFilter[Any]) -> QueryContext:
        context = QueryContext(self._snapshot(), named=compiled.named, ordered=self._ordered)
        if kind == "lock":
            context.locks = self._locks()
        if kind == "cluster" and self._facts is not None:
            context.queue_is_drained = self._facts.is_drained()
            context.watcher_pause = await self._facts.watcher_pause()
        if kind == "job" and compiled.named is not None:
            ids = [job_id for job_id in compiled.named if isinstance(job_id, int)]
            found = [await self.find_job(job_id) for job_id in ids]
            context.jobs = [one.job for one in found if one is not None]
            context.archived = frozenset(
                one.job.id for one in found if one is not None and one.is_archived
            )
        elif kind == "job":
            context.jobs = await self._worked_on(self._jobs.ids(), self._jobs.view)
        return context

    async def _add_live(
        self, context: QueryContext, needs: frozenset[Need], rows: Sequence[Any]
    ) -> None:
        if needs and rows:
            instances = [row.instance for row in rows if isinstance(row, InstanceRow)]
            context.live = await self._live.gather(context.snapshot, needs, instances)


def _as_listed(
    names: Sequence[str],
    asked: Iterable[Any],
    ids: Sequence[int],
    data: Sequence[list[list[Any]]],
) -> list[list[list[Any]]]:
    """Yield the requested rows of jobs; a removed job has only its id."""
    found = dict(zip(ids, data, strict=True))
    nothing = [_UNAVAILABLE if name in JOB_FIELDS else ResultStatus.UNKNOWN.value for name in names]
    for job_id in asked:
        if isinstance(job_id, int) and job_id not in found:
            cells = zip(names, nothing, strict=True)
            found[job_id] = [
                [_NORMAL, job_id] if name == "id" else [why, None] for name, why in cells
            ]
    return [found[job_id] for job_id in dict.fromkeys(asked) if job_id in found]


def kind_of(kind: str) -> Kind:
    """Return a kind by name; PrereqError if it does not exist."""
    if kind not in KINDS:
        raise PrereqError(
            f"{kind!r:.40} is not a kind of objects; known: {', '.join(KINDS)}",
            ErrorCode.WRONG_INPUT,
        )
    return KINDS[kind]


def known_field(kind: Kind, name: str) -> Field[Any]:
    """Return a field by name; PrereqError if it does not exist."""
    field = kind.fields.get(name)
    if field is None:
        close = did_you_mean(name, kind.fields)
        raise PrereqError(f"unknown field {name!r:.60}{close}", ErrorCode.WRONG_INPUT)
    return field


def definitions(kind: Kind, names: Iterable[str] | None) -> list[dict[str, str]]:
    """Return the definitions of fields, all of the kind for None; unknown ones are marked."""
    wanted = kind.fields if names is None else names
    return [
        kind.fields[name].definition()
        if name in kind.fields
        else {
            "name": name,
            "title": name,
            "kind": ValueKind.UNKNOWN.value,
            "doc": f"Unknown field {name}",
        }
        for name in wanted
    ]


def job_row(fields: Sequence[Field[Any]], context: JobContext) -> list[Any]:
    """Return values of one job."""
    return [_plain(field, context) for field in fields]


def _columns(kind: str, names: Sequence[str]) -> _Columns:
    """Return the columns of these names.

    They are cached only if all are known, so that clients cannot fill the memory.
    """
    _check_count(names)
    if KINDS[kind].fields.keys() >= set(names):
        return _known_columns(kind, tuple(names))
    return _made_columns(kind, names)


def _made_columns(kind: str, names: Sequence[str]) -> _Columns:
    found = KINDS[kind]
    fields = [found.fields.get(name) for name in names]
    return _Columns(
        definitions(found, names),
        tuple(_no_such_field if field is None else field.value for field in fields),
        frozenset(need for field in fields if field for need in field.needs),
    )


_known_columns = lru_cache(maxsize=PLANS_KEPT)(_made_columns)


def _no_such_field(_row: Any) -> Missing:
    return _NO_SUCH_FIELD


def _plain(field: Field[Any], row: Any) -> Any:
    value = field.value(row)
    return None if isinstance(value, Missing) else value


def _check_count(names: Sequence[str]) -> None:
    if len(names) > FIELDS_LIMIT:
        raise PrereqError(f"more than {FIELDS_LIMIT} fields are requested", ErrorCode.WRONG_INPUT)
