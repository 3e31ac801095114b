"""The audit log of the REST server: who, from where, what, with which outcome and job; one JSON object a line.

No body, password or parameter is in it: what a job changed is in the master's audit log.
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
    """Appends records; what cannot be written is said in the daemon's log, with the record."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now

    def note(self, call: Call, status: HTTPStatus, why: str) -> None:
        """Record one request that would change something."""
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
