"""The states of a mirrored disk: one name for each, everywhere. The least bad comes first."""

import enum
from typing import Self


class MirrorState(enum.StrEnum):
    """The state of one part of a disk, or of the disk as a whole: that of its worst part."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    OK = "ok", "is open, connected to the other copy, and up to date"
    CLOSED = "closed", "is not open"
    SYNCING = "syncing", "is being synchronised"
    UNKNOWN = "unknown", "is unknown"
    CONNECTING = "connecting", "is open, but not connected to the other copy"
    DROPPED = "dropped", "is open; its node has ended the connection and does not try again"
    STALE = "stale", "is older than the other copy"
    INCOMPLETE = "incomplete", "is incomplete: its first or last synchronisation has not ended"
    BROKEN = "broken", "is damaged"
    MISSING = "missing", "is missing"
    SPLIT_BRAIN = (
        "split-brain",
        "has writes that the other copy lacks, and the reverse (split brain)",
    )

    @property
    def rank(self) -> int:
        """The severity, from 0."""
        return list(MirrorState).index(self)


WELL = (MirrorState.OK, MirrorState.CLOSED, MirrorState.SYNCING)
"""States that need no repair."""
UNUSABLE = (MirrorState.INCOMPLETE, MirrorState.BROKEN, MirrorState.MISSING)
"""States of a part from which no guest can start."""
LOST = (MirrorState.BROKEN, MirrorState.MISSING)
"""States of a part that must be recreated."""
