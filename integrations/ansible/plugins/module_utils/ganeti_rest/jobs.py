"""The end of a job: updates until then, and its results or its error."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.errors import (
    JobFailed,
    JobTimeout,
)

FINAL = frozenset(("success", "error", "canceled"))
_FIELDS = ("status", "opstatus", "progress")


@dataclass(frozen=True)
class JobUpdate:
    """What is new about a job: its status, its progress, and lines of its log."""

    job_id: int
    status: str
    progress: Any = None
    """The progress of a long transfer, as in the job's field of this name; None without one."""
    messages: Sequence[str] = ()


Wait = Callable[[int, list[str], list[Any] | None, int | None], Mapping[str, Any] | None]
"""Job, fields, previous values, previous log line -> changes, or None after ten seconds without one."""


def updates(wait: Wait, job_id: int, limit_s: float | None) -> Iterator[JobUpdate]:
    """Yield updates until the job has ended; JobTimeout."""
    end = None if limit_s is None else time.monotonic() + limit_s
    info: list[Any] | None = None
    line: int | None = None
    while info is None or info[0] not in FINAL:
        if end is not None and limit_s is not None and time.monotonic() >= end:
            raise JobTimeout(job_id, limit_s)
        found = wait(job_id, list(_FIELDS), info, line)
        if found is None:
            continue
        info = found["job_info"]
        entries = found["log_entries"] or []
        line = max((int(entry[0]) for entry in entries), default=line)
        yield JobUpdate(job_id, info[0], info[2], [_text(entry) for entry in entries])


def results(job: Mapping[str, Any]) -> list[Any]:
    """Return the results of a finished job's operations; JobFailed."""
    if job["status"] == "success":
        return list(job["opresult"])
    for status, result in zip(job["opstatus"], job["opresult"], strict=True):
        match result if status == "error" else None:
            case [str() as kind, [message, *_]]:
                raise JobFailed(job["id"], job["status"], str(message), kind)
    message = "the job was cancelled" if job["status"] == "canceled" else "the job has failed"
    raise JobFailed(job["id"], job["status"], message)


def _text(entry: Sequence[Any]) -> str:
    content = entry[3]
    return content if isinstance(content, str) else str(content)
