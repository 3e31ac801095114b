"""Fields of locks, for `gnt-debug locks`."""

from typing import Any

from ganeti.locking.manager import LockInfo
from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table


def _pending(info: LockInfo) -> list[list[Any]]:
    return [[waiter.mode.value, [str(owner) for owner in waiter.owners]] for waiter in info.waiters]


LOCK_FIELDS: dict[str, Field[LockInfo]] = table(
    (
        Field("name", "Name", ValueKind.OTHER, "Level and name of the lock", lambda r: r.full_name),
        Field(
            "mode",
            "Mode",
            ValueKind.OTHER,
            "How the lock is held now: exclusive or shared",
            lambda r: r.mode.value if r.mode else None,
        ),
        Field(
            "owner",
            "Owner",
            ValueKind.OTHER,
            "Jobs that hold the lock now",
            lambda r: sorted(str(owner) for owner in r.owners) or None,
        ),
        Field(
            "pending", "Pending", ValueKind.OTHER, "Jobs that wait for the lock, and how", _pending
        ),
    )
)
