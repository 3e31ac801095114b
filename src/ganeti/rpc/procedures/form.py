"""The declaration of a node procedure: its messages, its time limit, and whether it changes the host."""

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec

A = TypeVar("A", bound=msgspec.Struct)
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

PROTOCOL_VERSION = 1
"""Version of the whole node RPC; it changes only where an older peer would misunderstand a call."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all arguments and results."""


class Lane(enum.Enum):
    """Calls of one lane share their connections to a node, so that long ones never hold up short ones."""

    QUICK = "quick"
    NORMAL = "normal"
    LONG = "long"


@dataclass(frozen=True)
class Procedure(Generic[A, R_co]):
    """One procedure. A changing one is refused without the current epoch, and is repeatable by its key."""

    name: str
    arguments: type[A]
    result: type[R_co]
    deadline_s: float
    changes: bool
    is_long: bool = False
    """Runs as a task of the node with a durable record, which outlives the node daemon (`node/tasks.py`)."""
    keeps_resources: bool = False
    """Leaves the memory and the disk space of the node as they are, although it changes something."""

    @cached_property
    def answer(self) -> type[Any]:
        """Return the form of an answer with a result."""
        return msgspec.defstruct(f"{self.name}_answer", [("result", self.result)])

    @cached_property
    def changes_resources(self) -> bool:
        """Return whether the node may have other free memory or disk space after a call."""
        return self.changes and not self.keeps_resources

    @cached_property
    def lane(self) -> Lane:
        """Return the lane, chosen by the time limit."""
        if self.deadline_s <= QUICK_S:
            return Lane.QUICK
        return Lane.NORMAL if self.deadline_s <= NORMAL_S else Lane.LONG


def optional(result: type[T]) -> type[T | None]:
    """Return the type of a result that may be None."""
    return cast("type[T | None]", result | None)


class Nothing(Message, frozen=True, kw_only=True):
    """No arguments, or no result."""


QUICK_S, NORMAL_S, SLOW_S, HOURS_S = 5.0, 60.0, 300.0, 6 * 3600.0

SHUTDOWN_LIMIT_S = 3600.0
