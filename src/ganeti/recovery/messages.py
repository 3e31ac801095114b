"""What happens to the recovery core, and what it wants done; `core` decides, `daemons/recovery.py` carries out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TypeAlias

import msgspec

from ganeti.model.objects import NodeRow, NodeUuid
from ganeti.model.recovery import FenceMethod, GuestFault, InstanceRow, Token
from ganeti.recovery.facts import Watched

Row: TypeAlias = NodeRow | InstanceRow
"""What survives a change of master (D12)."""

# Events


@dataclass(frozen=True, slots=True)
class Configured:
    """The configuration says something else than before."""

    watched: Watched


@dataclass(frozen=True, slots=True)
class RoomAppeared:
    """The configuration has changed so that an instance that fitted nowhere may fit now."""


class MajorityConfirmed(msgspec.Struct, frozen=True):
    """A majority has confirmed this master; it was asked at that time."""

    asked_at: float


class BeatAnswered(msgspec.Struct, frozen=True):
    """A node has answered a heartbeat, itself or through a peer."""

    node: NodeUuid
    token: Token
    is_armed: bool
    faults: Mapping[str, GuestFault]
    """Instances by UUID whose guests failed."""
    is_direct: bool = True
    """It came from its primary address without a peer."""


@dataclass(frozen=True, slots=True)
class FenceEnded:
    """A method has fenced a node, or that failed."""

    node: NodeUuid
    is_fenced: bool
    detail: str = ""
    method: FenceMethod = FenceMethod.POWER
    fenced_instances: tuple[str, ...] = ()
    """By the storage: the instances by UUID to whose disks the node cannot write."""


@dataclass(frozen=True, slots=True)
class ReleaseEnded:
    """The storage accepts writes of a node again, or that failed."""

    node: NodeUuid
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FenceConfirmed:
    """An administrator says that a node is off."""

    node: NodeUuid
    by: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A row is in the state, in this master's epoch."""

    row: Row


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A row may be in the state or not."""

    row: Row


class Outcome(Enum):
    """How a job ended."""

    DONE = auto()
    NO_ROOM = auto()
    """No node can take the instance now."""
    NOT_ACCEPTED = auto()
    """The job queue takes no jobs now."""
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job of recovery has ended."""

    number: int
    outcome: Outcome
    detail: str = ""


class TimePassed(msgspec.Struct, frozen=True):
    """The core's `next_due` is reached."""


Event: TypeAlias = (
    Configured
    | RoomAppeared
    | MajorityConfirmed
    | BeatAnswered
    | FenceEnded
    | ReleaseEnded
    | FenceConfirmed
    | Committed
    | CommitFailed
    | JobEnded
    | TimePassed
)

# Instructions


class SendBeat(msgspec.Struct, frozen=True):
    """Send a heartbeat, with a token that renews the node's lease if one is given."""

    node: NodeUuid
    token: Token | None
    via: NodeUuid | None = None
    """A peer that relays it, because the node does not answer."""
    is_secondary: bool = False
    """To its secondary address."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Turn the power of a node off and confirm that, or let its storage refuse its writes; FenceEnded follows."""

    node: NodeUuid
    method: FenceMethod = FenceMethod.POWER


@dataclass(frozen=True, slots=True)
class Release:
    """Let the storage of these instances accept writes of a node that has returned; ReleaseEnded follows."""

    node: NodeUuid
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Write a row under this master's epoch; Committed or CommitFailed follows."""

    row: Row


class JobKind(StrEnum):
    """The jobs of recovery."""

    MARK_OFFLINE = "mark offline"
    FAIL_OVER = "fail over"
    RESTART = "restart"
    REJOIN = "rejoin"
    """Drop on a node what has moved away, and mark it online."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a job about a node, or an instance; JobEnded with the number follows."""

    number: int
    kind: JobKind
    about: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Tell administrators what recovery does not do by itself, and what they can do."""

    about: str
    text: str


Instruction: TypeAlias = SendBeat | Fence | Release | Commit | Submit | Alarm
