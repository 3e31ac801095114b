"""What happened in a simulation, as plain data: the input of the report. Times are seconds after the beginning."""

from dataclasses import dataclass, field
from enum import StrEnum

from ganeti.model.stored import Stored


@dataclass(frozen=True)
class NodeChange:
    """A change of a node's machine or of its state in the cluster."""

    at: float
    node: str
    state: str
    """`failed`, `cut off`, `up`, a state of automatic recovery, `offline` or `online`."""
    why: str = ""


class GuestState(StrEnum):
    """What happened to a guest."""

    STARTS = "starts"
    """Its process runs; its system boots."""
    UP = "up"
    """Its system serves."""
    MOVED = "moved"
    """It has come from another node by a live migration."""
    DOWN = "down"


@dataclass(frozen=True)
class GuestChange:
    """A change of a guest on a node."""

    at: float
    instance: str
    node: str
    state: GuestState
    took: float = 0.0
    """Seconds until its process ran, if it starts."""


@dataclass(frozen=True)
class OpRecord:
    """One opcode of a job."""

    summary: str
    """For example `INSTANCE_FAILOVER(web1)`."""
    status: str
    start: float | None = None
    """When it began to wait for its locks."""
    exec: float | None = None
    """When it had its locks."""
    end: float | None = None
    error: str = ""
    has_no_room: bool = False
    """True if the error is a lack of resources."""

    @property
    def kind(self) -> str:
        return self.summary.partition("(")[0]

    @property
    def subject(self) -> str:
        return self.summary.partition("(")[2].removesuffix(")")


@dataclass(frozen=True)
class JobRecord:
    """One job."""

    number: int
    status: str
    received: float
    ops: tuple[OpRecord, ...]
    end: float | None = None


@dataclass
class History:
    """One simulation."""

    ended: float
    before: tuple[Stored, ...]
    after: tuple[Stored, ...]
    nodes: list[NodeChange] = field(default_factory=list)
    masters: list[tuple[float, str]] = field(default_factory=list)
    """The time at which each node became the master; '' where the cluster lost its master."""
    guests: list[GuestChange] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)
    down: frozenset[str] = frozenset()
    """Nodes that are down or cut off at the end."""
