"""A small file of the administrator that is read again after each change."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from ganeti.base.errors import InputError

FILE_LIMIT = 1024 * 1024
_NO_FILE = (0, 0, 0)

T = TypeVar("T")

log = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """The last valid content of a file; `absent` is its value without the file."""

    def __init__(self, path: Path, parse: Callable[[str], T], absent: T, without: str) -> None:
        """Read nothing yet. `parse` raises InputError; `without` says what is missing without the file."""
        self.path = path
        self.value = absent
        self._parse = parse
        self._absent = absent
        self._without = without
        self._seen = _NO_FILE

    def refresh(self) -> bool:
        """Read the file again if it has changed; return True if it has. An unreadable file keeps the old value."""
        before = self._seen
        try:
            status = self.path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                self.value = self._parse(self._read())
                self._seen = seen
        except FileNotFoundError:
            if self._seen != _NO_FILE:
                log.warning("%s does not exist: %s", self.path, self._without)
            self.value, self._seen = self._absent, _NO_FILE
        except (OSError, UnicodeDecodeError) as err:
            log.error("cannot read %s, so its last content remains valid: %s", self.path, err)  # noqa: TRY400
        except InputError as err:
            self._seen = seen
            log.error("%s is invalid, so its last content remains valid: %s", self.path, err)  # noqa: TRY400
        return self._seen != before

    def _read(self) -> str:
        with self.path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise OSError(0, f"it has more than {FILE_LIMIT} bytes")
        return content.decode("utf-8")
