"""The terms of the field, as enumerations; values are those of the wire and the commands."""

import enum

EVENT_KINDS = ("job", "instance", "node", "group", "network", "image", "cluster", "backup")
"""The kinds of events, in the event stream and in webhooks.

A `backup` is the state of an instance's backups by one schedule, after each change. It is not part of the state after
`reset`, because schedules are listed with it.
"""


class JobStatus(enum.StrEnum):
    """States of a job and of its opcodes (G6)."""

    QUEUED = "queued"
    WAITING = "waiting"
    CANCELING = "canceling"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    ERROR = "error"

    # Each job looks its states up in tables many times; that of `Enum` is a Python function.
    __hash__ = str.__hash__

    def __init__(self, text: str) -> None:
        self.is_final = text in ("canceled", "success", "error")


class AdminState(enum.StrEnum):
    """The state of an instance that the administrator requested."""

    UP = "up"
    DOWN = "down"
    OFFLINE = "offline"


class AdminStateSource(enum.StrEnum):
    """The requester of that state: an administrator, or the guest's user, who shut it down from inside."""

    ADMIN = "admin"
    USER = "user"


class InstanceStatus(enum.StrEnum):
    """An instance's desired and actual state in one word, in upstream's terms."""

    RUNNING = "running"
    ADMIN_DOWN = "ADMIN_down"
    ADMIN_OFFLINE = "ADMIN_offline"
    USER_DOWN = "USER_down"
    ERROR_DOWN = "ERROR_down"
    ERROR_UP = "ERROR_up"
    ERROR_WRONG_NODE = "ERROR_wrongnode"
    ERROR_NODE_DOWN = "ERROR_nodedown"
    ERROR_NODE_OFFLINE = "ERROR_nodeoffline"


class NodeRole(enum.StrEnum):
    """A node's role, as `gnt-node list -o role` shows it."""

    MASTER = "M"
    CANDIDATE = "C"
    REGULAR = "R"
    DRAINED = "D"
    OFFLINE = "O"


class DiskRole(enum.StrEnum):
    """A node's use of an open disk."""

    PRIMARY = "primary"
    """A guest may write to it on this node."""
    SECONDARY = "secondary"
    """It receives the writes of the primary node; no program reads it."""
    BOTH = "both"
    """Primary; during a migration the other node may be primary, too."""


class RebootType(enum.StrEnum):
    """Soft asks the guest, hard resets it, full stops and starts it with its current parameters."""

    SOFT = "soft"
    HARD = "hard"
    FULL = "full"


class Consistency(enum.StrEnum):
    """What the disks of a snapshot contain."""

    DOWN = "down"
    """The guest was down."""
    AGENT = "agent"
    """The agent in the guest had frozen its file systems."""
    CRASH = "crash"
    """The guest ran: its disks are as after a loss of power, all at the same moment."""
    MEMORY = "memory"
    """The guest ran: the disks, and its memory of the same moment."""


class ProofState(enum.StrEnum):
    """What is known about a backup."""

    GOOD = "good"
    """It was booted, or checked if no drill was asked for."""
    FAILED = "failed"
    """Its last check or drill found a problem."""
    UNPROVEN = "unproven"


class AllocPolicy(enum.StrEnum):
    """The use of a node group by allocators."""

    PREFERRED = "preferred"
    LAST_RESORT = "last_resort"
    UNALLOCABLE = "unallocable"


class ResultStatus(enum.IntEnum):
    """The status of a value in a query's answer; upstream's numbers."""

    NORMAL = 0
    UNKNOWN = 1
    NO_DATA = 2
    UNAVAILABLE = 3
    OFFLINE = 4
