"""The audit log of the REST server: user, address, request, outcome and job, as one JSON object a line.

It never contains bodies, passwords or parameters. The master's audit log contains the changes of jobs.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ganeti.base.audit_file import TEXT_LIMIT, AuditQuery, append_record, latest_records
from ganeti.base.terminal import escaped


@dataclass(frozen=True)
class Recorded:
    """A request for a change, as the log has it."""

    user: str
    address: str
    method: str
    path: str
    reason: str | None
    jobs: Sequence[int]


class Audit:
    """Appends records; a record that cannot be written goes to the daemon's log."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now

    def note(self, request: Recorded, status: HTTPStatus, why: str) -> None:
        """Record one request for a change."""
        record: dict[str, Any] = {
            "time": round(self._now(), 3),
            "user": escaped(request.user, TEXT_LIMIT),
            "address": request.address,
            "method": request.method,
            "path": request.path,
            "status": status.value,
            "jobs": list(request.jobs),
        }
        if request.reason:
            record["reason"] = escaped(request.reason, TEXT_LIMIT)
        if why:
            record["why"] = escaped(why, TEXT_LIMIT)
        append_record(self._path, record)

    async def latest(self, query: AuditQuery) -> list[dict[str, Any]]:
        """Return the last records that fit, the newest first; ConfigurationError."""
        return await asyncio.to_thread(latest_records, self._path, query)
