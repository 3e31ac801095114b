"""The progress of a piece of work, as nodes report it and jobs show it."""

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The position in bytes; skipped zeros count as well."""

    done: int
    total: int = 0
    """The total; 0 if it is unknown."""
    part: str = ""
    """The present object, if one call processes several in turn."""
    is_time: bool = False
    """The positions are seconds, and the total is a time limit."""


class JobProgress(msgspec.Struct, frozen=True):
    """The position of a running job, for people; only the running master has it."""

    text: str
    """What is being processed."""
    percent: float | None
    """None if the total is unknown."""
    rate: float | None
    """Bytes a second since the last look."""
    left_s: float | None
    """Estimated seconds until the end of this part."""
