"""The master's audit log: callers of changes by LUXI, and each job's changes to the configuration.

One JSON object a line, without secrets. Requests by REST are in the REST server's log; the job's
number joins the two.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ganeti.api.luxi_server import Caller
from ganeti.base.audit_file import TEXT_LIMIT, AuditQuery, append_record, latest_records
from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.base.terminal import escaped
from ganeti.config.changes import CHANGED_BY, ChangedObject
from ganeti.config.kinds import kind_of
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.webhook import WebhookState
from ganeti.protocols.luxi import Answer, Request, error_from_wire
from ganeti.recovery.power import PowerResult, StorageResult

OBJECTS_LIMIT = 100
"""Maximum number of objects of one transaction in the record."""
SUMMARIES_LIMIT = 20
_OF_ONE_JOB = ("CancelJob", "ArchiveJob", "ChangeJobPriority", "AbandonUndo")


class RequestAudit(Protocol):
    """The recorded part of requests that would change something."""

    def asked(self, caller: Caller, request: Request, answer: Answer) -> None: ...


class MasterAudit:
    """Appends to the log of this node."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def asked(self, caller: Caller, request: Request, answer: Answer) -> None:
        """Record a request for a change, and its outcome."""
        record: dict[str, Any] = {
            "user": f"uid {caller.uid}",
            "address": f"pid {caller.pid}",
            "method": request.method,
            "path": escaped(_what(request), TEXT_LIMIT),
            "status": "done" if answer.success else "refused",
            "jobs": _jobs(request, answer.result) if answer.success else [],
        }
        if not answer.success:
            record["why"] = escaped(_why(answer.result), TEXT_LIMIT)
        self._append(record)

    def changed(self, job_id: int | None, objects: Sequence[ChangedObject]) -> None:
        """Record an acknowledged transaction; the positions of webhooks change all the time, and no user changes them."""
        objects = [one for one in objects if not isinstance(one.thing, WebhookState)]
        if not objects:
            return
        told = [
            {
                "kind": kind_of(one.thing),
                "name": one.thing.name,
                "uuid": one.thing.uuid,
                "change": one.change,
                "differences": one.differences(),
            }
            for one in objects[:OBJECTS_LIMIT]
        ]
        self._append(
            {
                "user": "master" if job_id is None else f"job {job_id}",
                "method": "changed",
                "path": escaped(", ".join(f"{one['kind']} {one['name']}" for one in told), TEXT_LIMIT),
                "status": "done",
                "jobs": [] if job_id is None else [job_id],
                "objects": told,
                "more_objects": len(objects) - len(told),
            }
        )  # fmt: skip

    def power_cut(self, node: str, device: str, result: PowerResult, seconds: float) -> None:
        """Record an attempt to switch a node off."""
        job_id = CHANGED_BY.get()
        self._append(
            {
                "user": "master" if job_id is None else f"job {job_id}",
                "method": "power off",
                "path": f"node {node}",
                "status": "done" if result.is_fenced else "failed",
                "jobs": [] if job_id is None else [job_id],
                "device": device,
                "seconds": round(seconds, 3),
                "why": escaped(result.detail, TEXT_LIMIT),
            }
        )

    def storage_fenced(self, node: str, result: StorageResult, seconds: float) -> None:
        """Record an attempt to let storage refuse a node's writes."""
        self._append(
            {
                "user": "master",
                "method": "fence by storage",
                "path": f"node {node}",
                "status": "done" if result.instances else "failed",
                "jobs": [],
                "seconds": round(seconds, 3),
                "why": escaped(result.detail, TEXT_LIMIT),
            }
        )

    def scheduled(self, schedule: BackupSchedule, instance: str, job_id: int) -> None:
        """Record a job that a schedule has begun, under the name of the schedule's owner."""
        self._append(
            {
                "user": schedule.owner,
                "method": "schedule",
                "path": f"schedule {schedule.name}, instance {instance}",
                "status": "done",
                "jobs": [job_id],
            }
        )

    async def latest(self, query: AuditQuery) -> list[dict[str, Any]]:
        """Return the last records that fit, the newest first; ConfigurationError."""
        return await asyncio.to_thread(latest_records, self._path, query)

    def _append(self, record: dict[str, Any]) -> None:
        append_record(self._path, {"time": round(self._clock.time(), 3), **record})


def _why(result: Any) -> str:
    return error_from_wire(result).message if isinstance(result, list) else str(result)


def _what(request: Request) -> str:
    """Return the content of a request; for jobs only their opcodes' names."""
    args = request.args
    if not request.method.startswith("Submit"):
        return " ".join(str(one) for one in args if isinstance(one, str | int | float))
    jobs = args[:1] if request.method != "SubmitManyJobs" else args[0] if args else ()
    if not isinstance(jobs, list):
        return ""
    ops = [op for job in jobs if isinstance(job, list) for op in job]
    more = ", …" if len(ops) > SUMMARIES_LIMIT else ""
    return ", ".join(_summary(op) for op in ops[:SUMMARIES_LIMIT]) + more


def _summary(op: Any) -> str:
    try:
        return parse_opcode(op, what="job").summary()
    except InputError:
        return str(op.get("OP_ID", "?")) if isinstance(op, dict) else "?"


def _jobs(request: Request, result: Any) -> list[int]:
    if request.method == "SubmitManyJobs":
        return [one for is_done, one in result if is_done]
    if request.method.startswith("Submit"):
        return [result]
    return [int(request.args[0])] if request.method in _OF_ONE_JOB else []
