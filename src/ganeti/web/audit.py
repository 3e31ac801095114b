"""The audit log of the REST server: user, address, request, outcome and job, as one JSON object a line.

It never contains bodies, passwords or parameters. The master's audit log contains the changes of jobs.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ganeti.base.audit_file import TEXT_LIMIT, append_record
from ganeti.base.terminal import escaped
from ganeti.web.operations import Call


class Audit:
    """Appends records; a record that cannot be written goes to the daemon's log."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now

    def note(self, call: Call, status: HTTPStatus, why: str) -> None:
        """Record one request for a change."""
        path = call.operation.path
        for kind, item in zip(call.operation.kinds, call.items, strict=True):
            path = path.replace("{" + kind + "}", item, 1)
        record: dict[str, Any] = {
            "time": round(self._now(), 3),
            "user": escaped(call.user.name, TEXT_LIMIT),
            "address": call.address,
            "method": call.operation.method,
            "path": path,
            "status": status.value,
            "jobs": call.job_ids,
        }
        if reason := call.arguments.text("reason"):
            record["reason"] = escaped(reason, TEXT_LIMIT)
        if why:
            record["why"] = escaped(why, TEXT_LIMIT)
        append_record(self._path, record)
