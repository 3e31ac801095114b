"""The audit log of the REST server: who, from where, what, with which outcome and job; one JSON object a line.

No body, password or parameter is in it: what a job did is in the job.
"""

import logging
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ganeti.base.terminal import escaped
from ganeti.model import wire
from ganeti.web.operations import Call

TEXT_LIMIT = 300

log = logging.getLogger(__name__)


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
        line = wire.encode(record) + b"\n"
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o640)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as err:
            log.error("%s cannot be written (%s): %s", self._path, err.strerror, line.decode())  # noqa: TRY400
