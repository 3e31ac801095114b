"""What to think of a disk, from what its nodes say of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ganeti.rpc.procedures.disks import DiskInfo, SyncStatus


class DiskState(StrEnum):
    """How one part of a disk is."""

    OK = "ok"
    CLOSED = "closed"
    """It is there, and not open."""
    SYNCING = "syncing"
    DEGRADED = "degraded"
    """Open, and not connected to its copy, or not up to date."""
    SPLIT_BRAIN = "split-brain"
    """Both copies were written to while they did not see each other."""
    MISSING = "missing"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """The node did not say."""


@dataclass(frozen=True)
class Seen:
    """One part of one disk: on which node, and what that says; `info` is None if it does not."""

    disk: int
    node: str
    is_primary: bool
    info: DiskInfo | None
    why: str = ""


def have_parted(one: SyncStatus, other: SyncStatus) -> bool:
    """Whether each copy has data that does not come from the other's."""
    ours, theirs = one.generations, other.generations
    if not ours or not theirs or one.connected or other.connected:
        return False
    return ours[0] not in theirs and theirs[0] not in ours


def is_behind(copy: SyncStatus, newest: SyncStatus) -> bool:
    """Whether a copy that is cut off takes itself for good, and has only what the other one comes from."""
    if copy.connected or newest.connected or not copy.up_to_date or not newest.up_to_date:
        return False
    ours, theirs = copy.generations[:1], newest.generations
    return bool(ours) and ours[0] != theirs[0] and ours[0] in theirs[1:]


def judge(parts: Sequence[Seen], *, mirrored: bool) -> list[DiskState]:
    """The state of each part of one disk."""
    syncs = [part.info.sync for part in parts if part.info is not None and part.info.sync]
    parted = len(syncs) > 1 and have_parted(syncs[0], syncs[1])
    return [_judged(part, mirrored=mirrored, parted=parted) for part in parts]


def _judged(part: Seen, *, mirrored: bool, parted: bool) -> DiskState:
    info = part.info
    if info is None:
        return DiskState.UNKNOWN
    if not info.exists:
        return DiskState.BROKEN if info.problem else DiskState.MISSING
    if info.problem:
        return DiskState.BROKEN
    if not mirrored:
        return DiskState.OK
    if info.sync is None:
        return DiskState.CLOSED
    if parted:
        return DiskState.SPLIT_BRAIN
    if info.sync.percent is not None:
        return DiskState.SYNCING
    return DiskState.OK if info.sync.in_sync else DiskState.DEGRADED


def row(part: Seen, state: DiskState) -> dict[str, Any]:
    """A part as a result shows it (S95, S97)."""
    info = part.info or DiskInfo(exists=False, problem=part.why)
    sync = info.sync or SyncStatus(up_to_date=False, connected=False)
    return {
        "disk": part.disk,
        "node": part.node,
        "primary": part.is_primary,
        "status": str(state),
        "path": info.path,
        "size": info.size,
        "percent": sync.percent,
        "seconds_left": sync.seconds_left,
        "rate": sync.rate,
        "state": sync.state,
        "problem": info.problem,
    }
