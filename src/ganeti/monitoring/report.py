"""The format of a collector's report for monitoring systems."""

from enum import IntEnum
from typing import Any, NamedTuple

BUILT_IN = "B"
NO_CATEGORY = "default"
"""The word for "no category" in addresses."""
STORAGE, INSTANCE = "storage", "instance"


class ReportKind(IntEnum):
    """The kind of a collector's report: figures or a status."""

    PERFORMANCE = 0
    STATUS = 1


class Code(IntEnum):
    """The result of a judging collector; codes of several can be combined by `or`."""

    GOOD = 0
    MENDING = 1
    """A temporary fault that is being repaired."""
    UNKNOWN = 2
    BAD = 4
    """An administrator must act."""


class Status(NamedTuple):
    """A code with its reason."""

    code: Code = Code.GOOD
    message: str = ""

    def plain(self) -> dict[str, Any]:
        return {"code": int(self.code), "message": self.message}


class Description(NamedTuple):
    """The description of a collector."""

    name: str
    category: str | None
    kind: ReportKind

    def report(self, data: Any, timestamp_ns: int) -> dict[str, Any]:
        """Return a report with this data."""
        return {
            "name": self.name,
            "version": BUILT_IN,
            "format_version": 1,
            "timestamp": timestamp_ns,
            "category": self.category,
            "kind": int(self.kind),
            "data": data,
        }

    def failed(self, why: str) -> Any:
        """Return the data of a failed collector."""
        if self.kind is ReportKind.STATUS:
            return {"status": Status(Code.UNKNOWN, why).plain()}
        return {"error": why}


def brief(report: dict[str, Any]) -> dict[str, Any]:
    """Return a judging collector's report with only its status."""
    if report["kind"] != ReportKind.STATUS:
        return report
    return {**report, "data": {"status": report["data"]["status"]}}
