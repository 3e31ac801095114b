"""The words of automatic recovery: policies, methods, states, tokens (`docs/design/recovery.md`)."""

from dataclasses import dataclass
from enum import StrEnum


class Recovery(StrEnum):
    """What happens to an instance whose guest or node is lost; backend parameter `recovery`."""

    NONE = "none"
    RESTART = "restart"
    """It is started again on its own node."""
    FAILOVER = "failover"
    """It is also started on another node, once its own is fenced."""


class FenceMethod(StrEnum):
    """How a node is kept from writing; node parameter `fence_methods` has them in order."""

    POWER = "power"
    """Its power is off, as its management controller confirms."""
    WATCHDOG = "watchdog"
    """Its lease is over, and its watchdog has reset it if its guests did not die."""
    STORAGE = "storage"
    """The storage of its protected instances refuses its writes. Its guests may run on without their disks, so this is
    tried last."""


class GuestFault(StrEnum):
    """How a guest failed that should run."""

    CRASHED = "crashed"
    HUNG = "hung"
    PANICKED = "panicked"


class NodeState(StrEnum):
    """What recovery knows of a node; all but SUSPECT are in the state store."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """It does not answer; nothing is done yet."""
    FENCING = "fencing"
    """It is being kept from writing."""
    FENCED = "fenced"
    """It runs no protected guest, and gets no lease."""
    STUCK = "stuck"
    """No method has fenced it: an administrator must confirm that it is off."""
    RETURNING = "returning"
    """It answers again; what moved away is being dropped there."""


class DiskRequestKind(StrEnum):
    """What the writer of a mirrored disk asks of the master."""

    DROP = "drop"
    """To write without the other copy: until the answer, writes wait (D5)."""
    JOIN = "join"
    """To count both copies as current: they are the same, and writes wait for both from now on (D3)."""
    LEAVE = "leave"
    """To count only the other copy as current: the disk below its own copy failed, or is being filled again (D1)."""
    SPLIT = "split"
    """Nothing: it reports that the copies do not connect, probably because both were written (D9)."""


@dataclass(frozen=True, slots=True)
class DiskRequest:
    """A request of a node that writes a mirrored disk."""

    disk: str
    """The UUID."""
    kind: DiskRequestKind
    generation: int
    """Of the record of its own copy; 0 if that has none."""


@dataclass(frozen=True, slots=True)
class Token:
    """When a node sent an answer, by its own monotonic clock, in one boot of its machine."""

    boot_id: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """What survives a change of master about an instance (D13)."""

    instance: str
    attempts: tuple[float, ...] = ()
    """Wall time of each recovery that was begun within the window."""
    given_up: str = ""
    """Why recovery is not tried again; '' while it is."""
