"""The lease on file: it outlives the node daemon, and counts in one boot of the machine only (D7).

The node daemon writes it. The watchdog process reads it, so it needs few imports.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.paths import Paths

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class LeaseRecord:
    """Times are those of `BootClock`."""

    boot_id: str
    ends_at: float = 0.0
    """The end of the lease."""
    protected: Mapping[str, float] = field(default_factory=dict)
    """UUIDs of instances whose guests may run under the lease only, and when that was said last."""
    as_of: Mapping[str, int] = field(default_factory=dict)
    """The position of the newest configuration that has said so; none from a node daemon of an earlier version."""


def boot_id(paths: Paths) -> str:
    """Return a value that changes with each boot; a virtual node may have one of its own below its root."""
    own = paths.below(BOOT_ID)
    return (own if own.exists() else Path(BOOT_ID)).read_text("ascii").strip()


def read_lease(paths: Paths) -> LeaseRecord | None:
    """Return the record of this boot; None if there is none. OSError, ValueError if it cannot be read."""
    try:
        found = json.loads(paths.lease.read_bytes())
    except FileNotFoundError:
        return None
    try:
        protected = {str(uuid): float(at) for uuid, at in found["protected"].items()}
        as_of = {str(uuid): int(position) for uuid, position in found.get("as_of", {}).items()}
        record = LeaseRecord(str(found["boot_id"]), float(found["ends_at"]), protected, as_of)
    except (TypeError, KeyError, AttributeError) as err:
        raise ValueError(f"{paths.lease} is damaged: {err}") from err
    return record if record.boot_id == boot_id(paths) else None


def write_lease(paths: Paths, record: LeaseRecord) -> None:
    """Replace the record; it is not synced, because a boot makes it void."""
    content = {
        "boot_id": record.boot_id,
        "ends_at": record.ends_at,
        "protected": dict(record.protected),
        "as_of": dict(record.as_of),
    }
    unfinished = paths.lease.with_suffix(".new")
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.replace(paths.lease)
