"""An audit log: one JSON object a line, appended, and read from its end.

A record that cannot be written goes to the daemon's log.
"""

import json
import logging
import os
import pwd
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any

from ganeti.base.errors import ConfigurationError

TEXT_LIMIT = 300
"""Maximum number of characters of one text in a record."""

LOOKED_AT = 64 * 1024 * 1024
"""Maximum number of bytes that are read from the end of a log."""
_BLOCK = 256 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditQuery:
    """Which records to return; None: any."""

    limit: int
    user: str | None = None
    since: float | None = None
    job: int | None = None
    about: str | None = None
    """Name of an object that was changed, or that a request names."""

    def fits(self, one: Mapping[str, Any]) -> bool:
        """Return True if a record of the right time is one of these."""
        return (
            (self.user is None or self.user in (one.get("user"), shown_user(one)))
            and (self.job is None or self.job in one.get("jobs", ()))
            and (self.about is None or _is_about(one, self.about))
        )


def _is_about(one: Mapping[str, Any], name: str) -> bool:
    words = str(one.get("path", "")).replace("/", " ").replace("(", " ").replace(")", " ")
    return name in words.replace(",", " ").split() or any(
        thing.get("name") == name for thing in one.get("objects", ())
    )


def latest_records(path: Path, query: AuditQuery) -> list[dict[str, Any]]:
    """Return the last records of a log that fit, the newest first; ConfigurationError if it cannot be read."""
    found: list[dict[str, Any]] = []
    try:
        for line in _lines_backwards(path):
            one = _record(line)
            if one is None:
                continue
            if query.since is not None and one["time"] < query.since:
                break
            if query.fits(one):
                found.append(one)
                if len(found) >= query.limit:
                    break
    except FileNotFoundError:
        return []
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    return found


def merged(logs: Iterable[Sequence[dict[str, Any]]], limit: int) -> list[dict[str, Any]]:
    """Return the newest records of several logs, the newest first."""
    return list(islice(merge(*logs, key=lambda one: -float(one["time"])), limit))


def shown_user(one: Mapping[str, Any]) -> str:
    """Return the user of a record; for `uid N` the name, if this host knows it."""
    user = str(one.get("user", ""))
    kind, _, number = user.partition(" ")
    if kind != "uid" or not number.isdecimal():
        return user
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, OverflowError):
        return user


def _record(line: bytes) -> dict[str, Any] | None:
    """Return a complete record; None for anything else."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_record = isinstance(found, dict) and isinstance(found.get("time"), int | float)
    return found if is_record else None


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file from its end, without reading the rest of it."""
    with path.open("rb") as file:
        position = end = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0 and end - position < LOOKED_AT:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            yield from reversed(lines)
        if position == 0:
            yield rest


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
