"""A SQLite connection whose statements can be made to wait or to fail, and the sync of its log."""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def sqlite_error(code: int, text: str = "injected") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@dataclass
class Script:
    """What happens to the statements of all connections of one store, and to its syncs (`SYNC`)."""

    failures: dict[str, sqlite3.Error | OSError] = field(default_factory=dict)
    waits: dict[str, Callable[[], object]] = field(default_factory=dict)
    max_pages: int | None = None  # None leaves it alone, 0 means as many as there are

    def connect(self, path: Path) -> sqlite3.Connection:
        script = self

        class ScriptedConnection(sqlite3.Connection):
            is_writer = False

            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                if sql == "BEGIN IMMEDIATE":
                    self.is_writer = True
                    script.limit(super().execute)
                if self.is_writer:
                    script.meet(sql)
                return super().execute(sql, *args)

        return sqlite3.connect(path, isolation_level=None, factory=ScriptedConnection)

    def sync(self, descriptor: int) -> None:
        self.meet("SYNC")
        os.fdatasync(descriptor)

    def limit(self, execute: Callable[[str], sqlite3.Cursor]) -> None:
        if self.max_pages is not None:
            pages = self.max_pages or execute("PRAGMA page_count").fetchone()[0]
            execute(f"PRAGMA max_page_count = {pages}").fetchall()

    def meet(self, sql: str) -> None:
        for start in list(self.waits):
            if sql.startswith(start):
                self.waits.pop(start)()
        for start in list(self.failures):
            if sql.startswith(start):
                raise self.failures.pop(start)
