"""An audit log: one JSON object a line, appended.

A record that cannot be written goes to the daemon's log.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEXT_LIMIT = 300
"""Maximum number of characters of one text in a record."""

log = logging.getLogger(__name__)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record; a failure is logged with the record, and raises nothing."""
    line = json.dumps(record, separators=(",", ":")) + "\n"
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o640)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as err:
        log.error("cannot write %s (%s): %s", path, err.strerror, line)  # noqa: TRY400
