"""The LUXI methods of the master, over the queue, the configuration and queries.

A client's fault is answered and never ends the daemon: malformed requests get a message, requests
that cannot be met get the error's name and arguments.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ganeti.api.audit import RequestAudit
from ganeti.api.cluster_info import cluster_info
from ganeti.api.ha_status import HaStatus
from ganeti.api.luxi_arguments import Arguments
from ganeti.api.luxi_server import Caller
from ganeti.api.not_master import TAKE_OVER
from ganeti.api.ports import Backups, Configuration, Filters, Queue, Screenshots, WatcherPause
from ganeti.api.rest_methods import MAKE_LINK, MAY, Method
from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, GanetiError, InputError, JobLost, PrereqError
from ganeti.base.yield_every import YieldEvery
from ganeti.config.resolve import (
    resolve_backup_key,
    resolve_group,
    resolve_instance,
    resolve_network,
    resolve_node,
)
from ganeti.model import wire
from ganeti.model.job import JOB_BYTES, Submitter, remote_source
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.model.scope import Scope
from ganeti.protocols.luxi import NO_CHANGE, Answer, Request, refusal
from ganeti.query.execute import (
    KINDS,
    QueryExecutor,
    definitions,
    job_row,
    kind_of,
    known_field,
)
from ganeti.query.fields.field import Field
from ganeti.query.fields.job import JobContext
from ganeti.units.backup.keys import active_key
from ganeti.units.expected import check_expected
from ganeti.units.job_scope import check_scope, jobs_of
from ganeti.units.missing_objects import Programs, check_objects
from ganeti.units.registry import UNITS
from ganeti.units.submission import check_values

JOBS_LIMIT = 20_000
"""Maximum number of jobs in one SubmitManyJobs."""
OPCODES_LIMIT = 1_000
"""Maximum number of opcodes in one job; a job with more is refused before the submission is parsed."""
WATCHER_MEMORY_LIMIT = 512 * 1024
WAIT_LIMIT_S = 60.0
"""Maximum time before a waiting client gets a message to keep waiting (S195)."""

AUDITED = frozenset(
    (
        "SubmitJob", "SubmitJobToDrainedQueue", "SubmitManyJobs", "CancelJob", "ChangeJobPriority", "ArchiveJob",
        "ReplaceFilter", "DeleteFilter", "SetDrainFlag", "SetWatcherPause", "AbandonUndo", "BackupState",
        MAKE_LINK, "ReadBackupKey",
    )
)  # fmt: skip
"""Methods that change something, and that the REST server does not record."""

REASON_SOURCE, REST_SOURCE = "gnt:luxi", "gnt:rest"
BACKUP = "BackupState"
READ_KEY = "ReadBackupKey"


class _Method(NamedTuple):
    handler: Callable[[Arguments, Caller], Awaitable[Any]]
    least: int
    most: int
    at_once: Callable[[Arguments], Any] | None = None
    """Returns the handler's answer, or None if that takes time."""


class _Awaited(NamedTuple):
    """The state that a waiting client knows, and the fields that it requests."""

    job_id: int
    fields: list[Field[Any]]
    previous: list[Any] | None
    serial: int
    """The serial of the last log line that the client has."""
    timeout_s: float


SUBMIT_PRIORITIES = (10, 0, -10)
"""Low, normal, high; a running job may get any other."""
_QUICK = frozenset(("id", "status", "priority", "received_ts", "start_ts", "end_ts"))
"""Fields of a job that are cheap, whatever the job has done."""


class LuxiMethods:
    """The dispatcher behind the LUXI server of a master."""

    def __init__(  # noqa: PLR0913 - the ports of the master
        self,
        *,
        queue: Queue,
        config: Configuration,
        queries: QueryExecutor,
        watcher_pause: WatcherPause,
        screenshots: Screenshots,
        backups: Backups,
        filters: Filters,
        clock: Clock,
        audit: RequestAudit,
        ha_status: HaStatus,
        programs: Programs,
        more: Mapping[str, Method] | None = None,
        rest_uid: int | None = None,
    ) -> None:
        """`more` are methods for the REST server only; `rest_uid` is its user, if it has one of its own."""
        self._rest_uid = rest_uid
        self._queue = queue
        self._config = config
        self._queries = queries
        self._watcher_pause = watcher_pause
        self._screenshots = screenshots
        self._backups = backups
        self._filters = filters
        self._clock = clock
        self._audit = audit
        self._ha_status = ha_status
        self._programs = programs
        self._methods = self._table()
        self._methods |= {name: _Method(*method) for name, method in (more or {}).items()}

    def _table(self) -> dict[str, _Method]:
        return {
            "SubmitJob": _Method(self._submit_job, 1, 2),
            "SubmitJobToDrainedQueue": _Method(self._submit_to_drained, 1, 1),
            "SubmitManyJobs": _Method(self._submit_many, 1, 2),
            "SubmitJobAs": _Method(self._submit_as, 3, 3),
            "WaitForJobChange": _Method(self._wait_for_change, 5, 5, self._end_at_once),
            "PickupJob": _Method(self._pickup, 1, 1),
            "CancelJob": _Method(self._cancel, 1, 2),
            "ArchiveJob": _Method(self._archive, 1, 1),
            "AutoArchiveJobs": _Method(self._auto_archive, 2, 2),
            "ChangeJobPriority": _Method(self._change_priority, 2, 2),
            "Query": _Method(self._query, 2, 3, self._query_at_once),
            "QueryFields": _Method(self._query_fields, 1, 2),
            "QueryJobs": _Method(self._query_jobs, 2, 2),
            "QueryInstances": _Method(self._old_query("instance"), 2, 3),
            "QueryNodes": _Method(self._old_query("node"), 2, 3),
            "QueryGroups": _Method(self._old_query("group"), 2, 3),
            "QueryNetworks": _Method(self._old_query("network"), 2, 3),
            "QueryImages": _Method(self._old_query("image"), 2, 3),
            "QueryExports": _Method(self._query_exports, 0, 2),
            "QuerySchedules": _Method(self._old_query("schedule"), 2, 3),
            "QueryBackupKeys": _Method(self._old_query("backup-key"), 2, 3),
            READ_KEY: _Method(self._read_key, 0, 1),
            "QueryWebhooks": _Method(self._old_query("webhook"), 2, 3),
            "QueryFilters": _Method(self._old_query("filter"), 2, 3),
            "ReplaceFilter": _Method(self._replace_filter, 5, 5),
            "DeleteFilter": _Method(self._delete_filter, 1, 1),
            "QueryConfigValues": _Method(self._query_config_values, 1, 1),
            "QueryClusterInfo": _Method(self._query_cluster_info, 0, 0),
            "QueryTags": _Method(self._query_tags, 2, 2),
            "SetDrainFlag": _Method(self._set_drain_flag, 1, 2),
            "SetWatcherPause": _Method(self._set_watcher_pause, 1, 1),
            "QueryWatcherMemory": _Method(self._query_watcher_memory, 0, 0),
            "SetWatcherMemory": _Method(self._set_watcher_memory, 1, 1),
            "QueryHaStatus": _Method(self._query_ha_status, 0, 0),
            "QueryPendingUndo": _Method(self._query_pending_undo, 0, 0),
            "AbandonUndo": _Method(self._abandon_undo, 2, 2),
            "InstanceScreenshot": _Method(self._screenshot, 1, 1),
            BACKUP: _Method(self._backup, 1, 1),
            TAKE_OVER: _Method(self._is_master, 1, 1),
        }

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the methods."""
        return frozenset(self._methods)

    def is_abandonable(self, method: str) -> bool:
        """Return True for waits and downloads, which are useless to a disconnected client."""
        return method in ("WaitForJobChange", "WaitForEvents", BACKUP)

    def answer_at_once(self, request: Request, _caller: Caller) -> Answer | None:
        """Return the answer to a small query of the configuration; None for all else, and for errors."""
        method = self._methods.get(request.method)
        if method is None or method.at_once is None:
            return None
        args = Arguments(request.method, request.args, least=method.least, most=method.most)
        result = method.at_once(args)
        return None if result is None else Answer(True, result, degraded=self._config.degraded)

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """Carry out one request."""
        method = self._methods.get(request.method)
        if method is None:
            return self._refusal(f"Failed to parse request: no method {request.method!r:.60}")
        answer = await self._carried_out(method, request, caller)
        if request.method in AUDITED:
            self._audit.asked(caller, request, answer)
        return answer

    async def _carried_out(self, method: _Method, request: Request, caller: Caller) -> Answer:
        if caller.uid == self._rest_uid and request.method not in MAY:
            why = f"the user of the REST server may not call {request.method}"
            return self._refused(PrereqError(why, ErrorCode.WRONG_STATE))
        try:
            args = Arguments(request.method, request.args, least=method.least, most=method.most)
            result = await method.handler(args, caller)
        except InputError as err:
            if err.field.startswith(request.method):
                return self._refusal(f"Failed to parse request: {err.message}")
            return self._refused(err)
        except GanetiError as err:
            return self._refused(err)
        return Answer(True, result, degraded=self._config.degraded)

    def _refused(self, err: GanetiError) -> Answer:
        return refusal(err, degraded=self._config.degraded)

    def _refusal(self, result: Any) -> Answer:
        return Answer(False, result, degraded=self._config.degraded)

    # Jobs

    async def _submit_job(self, args: Arguments, caller: Caller) -> int:
        """Submit a job.

        A repeated key gives the same job, so that a client may retry after a lost answer (F16).
        """
        key = None if args.raw(1) is None else args.text(1)
        ops = await self._parsed_jobs([args.raw(0)], caller, what="job")
        return await self._queue.submit(ops[0], key=key)

    async def _submit_to_drained(self, args: Arguments, caller: Caller) -> int:
        ops = await self._parsed_jobs([args.raw(0)], caller, what="job")
        return await self._queue.submit(ops[0], even_if_drained=True)

    async def _submit_as(self, args: Arguments, caller: Caller) -> int:
        """Submit a job of a user of the REST interface: user, opcodes, key; it has fewer rights (A44)."""
        who = args.raw(0)
        if not isinstance(who, dict) or not isinstance(who.get("user"), str) or not who["user"]:
            raise InputError("must contain the user", "SubmitJobAs[0]")
        (job,) = await self._parsed_jobs([args.raw(1)], caller, what="job")
        address = str(who.get("address", ""))[:100]
        said = (REST_SOURCE, f"user {who['user']:.100} from {address}", self._now_ns())
        ops = [msgspec.structs.replace(op, reason=[*op.reason, said]) for op in job]
        scope = wire.convert(who.get("scope"), Scope | None, what="scope")
        submitter = Submitter(remote_source(who["user"]), scope)
        await self._check_scope(submitter, ops)
        for op in ops:
            UNITS[type(op)](op).check_arguments()
        check = partial(self._check_request, ops, submitter)
        return await self._queue.submit(ops, key=args.text(2), submitter=submitter, check=check)

    async def _check_request(self, ops: Sequence[OpCode], submitter: Submitter) -> None:
        """Raise PrereqError for objects that do not exist, and for values that are not allowed."""
        await check_objects(self._config.snapshot, ops, self._queue.unended_ops, self._programs)
        if len(ops) == 1:
            check_expected(self._config.snapshot, ops[0])
        await self._check_values(ops, submitter)

    async def _check_values(self, ops: Sequence[OpCode], submitter: Submitter) -> None:
        """Raise PrereqError for values that the configuration does not allow.

        Skipped where an unfinished job of the same user, or another opcode of the job, may change
        the relevant objects.
        """
        is_alone = len(ops) == 1 and not ops[0].depends
        if is_alone and not any(True for _ in self._queue.unended_ops(submitter.source)):
            await check_values(self._config.snapshot, ops[0], submitter, self._clock)

    async def _check_scope(self, submitter: Submitter, ops: Sequence[OpCode]) -> None:
        """Raise PrereqError if the user is limited and an opcode refers to an object beyond the limits."""
        if submitter.scope is None:
            return
        own_jobs = set[int]()
        for job_id in set().union(*(jobs_of(op) for op in ops)):
            found = await self._queries.find_job(job_id)
            if found is not None and found.job.source == submitter.source:
                own_jobs.add(job_id)
        for op in ops:
            check_scope(self._config.snapshot, submitter.scope, op, own_jobs)

    async def _submit_many(self, args: Arguments, caller: Caller) -> list[list[Any]]:
        """Submit jobs; all are checked before the first is accepted: a malformed one refuses all.

        A repeated key gives the same jobs (F16).
        """
        key = None if args.raw(1) is None else args.text(1)
        raw = args.raw(0)
        if not isinstance(raw, list):
            raise InputError("must be a list of jobs", "jobs")
        if len(raw) > JOBS_LIMIT:
            raise InputError(f"has more than {JOBS_LIMIT} jobs; submit them in parts", "jobs")
        jobs = await self._parsed_jobs(raw, caller, what="jobs")
        outcomes = await self._queue.submit_many(jobs, key=key)
        return [
            [False, outcome.message] if isinstance(outcome, GanetiError) else [True, outcome]
            for outcome in outcomes
        ]

    async def _parsed_jobs(
        self, raw_jobs: list[Any], caller: Caller, *, what: str
    ) -> list[list[OpCode]]:
        """Return the opcodes of each job, marked with the sender; InputError names the invalid part."""
        source = (REASON_SOURCE, f"uid {caller.uid}, pid {caller.pid}", self._now_ns())
        jobs = []
        pause = YieldEvery()
        for number, raw in enumerate(raw_jobs):
            where = what if what == "job" else f"{what}[{number}]"
            if not isinstance(raw, list):
                raise InputError("must be a list of opcodes", where)
            if len(raw) > OPCODES_LIMIT:
                raise InputError(f"has more than {OPCODES_LIMIT} opcodes", where)
            ops = []
            for index, value in enumerate(raw):
                op = parse_opcode(value, what=f"{where}[{index}]")
                if op.priority not in SUBMIT_PRIORITIES:
                    raise InputError(
                        f"must be one of {', '.join(map(str, SUBMIT_PRIORITIES))}",
                        f"{where}[{index}].priority",
                    )
                ops.append(msgspec.structs.replace(op, reason=[*op.reason, source]))
                await pause()
            if len(wire.encode(ops)) > JOB_BYTES:
                raise InputError(f"is longer than {JOB_BYTES} bytes", where)
            jobs.append(ops)
        return jobs

    def _now_ns(self) -> int:
        return int(self._clock.time() * 1e9)

    def _end_at_once(self, args: Arguments) -> list[Any] | None:
        """Return the end of a job without log lines, for a client that requests few fields."""
        status = self._queue.status(args.job_id(0))
        if status is None or not status.is_final or not _QUICK.issuperset(args.texts(1)):
            return None
        asked, job = _awaited(args), self._queue.view(args.job_id(0))
        if job is None or any(job.log):
            return None
        return [job_row(asked.fields, JobContext(job)), []]

    async def _wait_for_change(self, args: Arguments, _caller: Caller) -> Any:
        asked = _awaited(args)
        status = self._queue.status(asked.job_id)
        if status is None or status.is_final:
            context = await self._queries.find_job(asked.job_id)
            if context is None:
                raise _lost(asked.job_id)
            log = [entry for entries in context.job.log for entry in entries]
            new = [entry for entry in log if entry[0] > asked.serial]
            return [job_row(asked.fields, context), new]
        news = await self._queue.wait_for_change(
            asked.job_id,
            lambda job: job_row(asked.fields, JobContext(job)),
            asked.previous,
            asked.serial,
            asked.timeout_s,
        )
        return NO_CHANGE if news is None else list(news)

    async def _pickup(self, args: Arguments, _caller: Caller) -> None:
        """Do nothing: the scheduler picks up accepted jobs itself."""
        if await self._queries.find_job(args.job_id(0)) is None:
            raise _lost(args.job_id(0))

    async def _cancel(self, args: Arguments, _caller: Caller) -> list[Any]:
        kill = args.raw(1) is not None and args.flag(1)
        return list(await self._queue.cancel(args.job_id(0), kill=kill))

    async def _archive(self, args: Arguments, _caller: Caller) -> bool:
        return await self._queue.archive(args.job_id(0))

    async def _auto_archive(self, args: Arguments, _caller: Caller) -> list[int]:
        return list(await self._queue.auto_archive(args.number(0), max(args.number(1), 0.0)))

    async def _change_priority(self, args: Arguments, _caller: Caller) -> list[Any]:
        return list(await self._queue.change_priority(args.job_id(0), int(args.number(1))))

    async def _set_drain_flag(self, args: Arguments, _caller: Caller) -> bool:
        moving = args.raw(1) is not None and args.flag(1)
        await self._queue.set_drained(args.flag(0), moving=moving)
        return True

    async def _replace_filter(self, args: Arguments, _caller: Caller) -> str:
        given = None if args.raw(0) is None else args.text(0)
        return await self._filters.replace(
            given, args.raw(1), args.raw(2), args.raw(3), args.raw(4)
        )

    async def _delete_filter(self, args: Arguments, _caller: Caller) -> None:
        await self._filters.delete(args.text(0))

    # Queries

    def _query_at_once(self, args: Arguments) -> dict[str, Any] | None:
        result = self._queries.query_at_once(args.text(0), args.texts(1), args.raw(2))
        return None if result is None else result.to_wire()

    async def _query(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        result = await self._queries.query(args.text(0), args.texts(1), args.raw(2))
        return result.to_wire()

    async def _query_fields(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        names = args.texts(1) or None
        return {"fields": definitions(kind_of(args.text(0)), names)}

    async def _query_jobs(self, args: Arguments, _caller: Caller) -> list[list[Any] | None]:
        return await self._queries.job_values(args.job_ids(0), args.texts(1))

    def _old_query(self, kind: str) -> Callable[[Arguments, Caller], Awaitable[list[list[Any]]]]:
        async def query(args: Arguments, _caller: Caller) -> list[list[Any]]:
            return await self._queries.values(kind, args.texts(0), args.texts(1))

        return query

    async def _screenshot(self, args: Arguments, _caller: Caller) -> str:
        """Return an instance's screen, as PNG in base64; it is stored nowhere."""
        return await self._screenshots.screenshot(self._config.snapshot, args.text(0))

    async def _query_exports(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        return dict(await self._queries.exports([] if args.raw(0) is None else args.texts(0)))

    async def _query_cluster_info(self, _args: Arguments, _caller: Caller) -> dict[str, Any]:
        kept = await self._config.state()
        return cluster_info(self._config.snapshot, degraded=self._config.degraded, state=kept)

    async def _query_config_values(self, args: Arguments, _caller: Caller) -> list[Any]:
        return await self._queries.config_values(args.texts(0))

    async def _query_tags(self, args: Arguments, _caller: Caller) -> list[str]:
        kind, name = args.text(0), args.text(1, default="")
        snapshot = self._config.snapshot
        if kind == "cluster":
            return list(snapshot.cluster.tags)
        if kind == "node":
            return list(resolve_node(snapshot, name).tags)
        if kind == "instance":
            return list(resolve_instance(snapshot, name).tags)
        if kind in ("group", "nodegroup"):
            return list(resolve_group(snapshot, name).tags)
        if kind == "network":
            return list(resolve_network(snapshot, name).tags)
        raise PrereqError(f"{kind!r:.40} is not a kind of object with tags", ErrorCode.WRONG_INPUT)

    async def _is_master(self, _args: Arguments, _caller: Caller) -> list[str]:
        return ["this node is the master already"]

    async def _backup(self, args: Arguments, caller: Caller) -> int:
        """Write a backup; only for callers with the daemon's own rights, since it writes any named file."""
        if caller.uid not in (0, os.geteuid()):
            raise PrereqError("only root may make a backup", ErrorCode.WRONG_STATE)
        path = Path(args.text(0))
        if not path.is_absolute() or "\0" in str(path):
            raise InputError("must be an absolute path", f"{BACKUP}[0]")
        return (await self._backups.write(path)).as_int()

    async def _read_key(self, args: Arguments, caller: Caller) -> dict[str, Any]:
        """Return a key of backups, by default the active one; only for root, and recorded in the audit log."""
        if caller.uid not in (0, os.geteuid()):
            raise PrereqError("only root may read a backup key", ErrorCode.WRONG_STATE)
        snapshot = self._config.snapshot
        key = (
            active_key(snapshot)
            if args.raw(0) is None
            else resolve_backup_key(snapshot, args.text(0))
        )
        if key is None:
            raise PrereqError(
                "no backup key is active; create one: gnt-backup key create",
                ErrorCode.UNKNOWN_ENTITY,
            )
        return {
            "key_id": key.name,
            "secret": key.secret,
            "made": key.ctime,
            "cluster": snapshot.cluster.name,
        }

    async def _query_ha_status(self, _args: Arguments, _caller: Caller) -> dict[str, Any]:
        return self._ha_status.answer()

    async def _query_pending_undo(self, _args: Arguments, _caller: Caller) -> list[dict[str, Any]]:
        """Return the pending undo of ended jobs, a dictionary for each step."""
        return [
            {
                "job": step.job_id,
                "summary": step.summary,
                "step": step.ident,
                "what": step.what,
                "why": step.why,
                "next_try_s": round(step.next_try_s, 1),
            }
            for step in self._queue.undo.listing()
        ]

    async def _abandon_undo(self, args: Arguments, _caller: Caller) -> str:
        return await self._queue.undo.abandon(args.job_id(0), args.text(1))

    async def _set_watcher_pause(self, args: Arguments, _caller: Caller) -> float | None:
        until = None if args.raw(0) is None else args.number(0)
        await self._watcher_pause.set(until)
        return until

    async def _query_watcher_memory(self, _args: Arguments, _caller: Caller) -> str:
        return self._queue.watcher_memory

    async def _set_watcher_memory(self, args: Arguments, _caller: Caller) -> None:
        text = args.text(0)
        if len(text) > WATCHER_MEMORY_LIMIT:
            raise InputError(f"has more than {WATCHER_MEMORY_LIMIT} characters", "memory")
        await self._queue.keep_watcher_memory(text)


def _awaited(args: Arguments) -> _Awaited:
    fields = [known_field(KINDS["job"], name) for name in args.texts(1)]
    previous = args.raw(2)
    if previous is not None and not isinstance(previous, list):
        raise InputError("must be a list or null", "WaitForJobChange[2]")
    serial = 0 if args.raw(3) is None else int(args.number(3))
    timeout_s = min(max(args.number(4), 0.0), WAIT_LIMIT_S)
    return _Awaited(args.job_id(0), fields, previous, serial, timeout_s)


def _lost(job_id: int) -> JobLost:
    return JobLost(
        f"job {job_id} does not exist; see `gnt-job list` for jobs that are not archived"
    )
