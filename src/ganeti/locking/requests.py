"""A job's request for locks: names of one level, in one mode."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ganeti.base.errors import LockError
from ganeti.locking.levels import Level, Mode


class AllNames(enum.Enum):
    """The type of `ALL`, which stands for every name of a level."""

    ALL = "all"


ALL: Final = AllNames.ALL

Names: TypeAlias = frozenset[str] | AllNames


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Locks of one level; an empty set of names requests nothing, never all."""

    level: Level
    names: Names
    mode: Mode = Mode.EXCLUSIVE

    @property
    def is_empty(self) -> bool:
        return self.names is not ALL and not self.names

    @property
    def is_single(self) -> bool:
        """Return whether this is exactly one lock."""
        return self.names is not ALL and len(self.names) == 1


def lock(
    level: Level, names: str | Iterable[str] | AllNames | None, mode: Mode = Mode.EXCLUSIVE
) -> LockRequest:
    """Return a request for one name, several, `ALL`, or (None) for nothing."""
    if isinstance(names, AllNames):
        return LockRequest(level, ALL, mode)
    if names is None:
        return LockRequest(level, frozenset(), mode)
    if isinstance(names, str):
        return LockRequest(level, frozenset((names,)), mode)
    return LockRequest(level, frozenset(names), mode)


def in_order(requests: Iterable[LockRequest]) -> list[LockRequest]:
    """Return one request per level, in the order of levels.

    LockError if a level is requested in two modes.
    """
    merged: dict[Level, LockRequest] = {}
    for request in requests:
        if request.is_empty:
            continue
        before = merged.get(request.level)
        merged[request.level] = request if before is None else _union(before, request)
    return [merged[level] for level in sorted(merged)]


def _union(one: LockRequest, other: LockRequest) -> LockRequest:
    if one.mode is not other.mode:
        raise LockError(
            f"one job requests the {one.level.label} locks both shared and exclusively; request "
            "each level in one mode"
        )
    if isinstance(one.names, AllNames) or isinstance(other.names, AllNames):
        return LockRequest(one.level, ALL, one.mode)
    return LockRequest(one.level, one.names | other.names, one.mode)
