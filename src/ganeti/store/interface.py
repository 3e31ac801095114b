"""The types of the state: positions, transactions, roles and members; `backend` has the interface.

NotMaster      not written: this store, or this lease, is not (or no longer) the master's
NotYet         a campaign was refused that may be granted a little later
Refused        not written: a limit, a full disk; the text says which
CommitUnknown  perhaps written (R13): campaign again and load
NotInLog       the log does not continue that position; load a snapshot
StoreError     the data cannot be read: broken disk, corrupt content, closed store
"""

import enum
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import msgspec

from ganeti.base.errors import NotMaster, Refused, StoreError
from ganeti.model.objects import NodeUuid

MAX_OPERATIONS = 100
MAX_TRANSACTION_BYTES = 1 << 20
MAX_SERIAL = (1 << 32) - 1
MAX_EPOCH = (1 << 31) - 1

# Rows of this kind belong to the store and to the job ids; the layers above skip them.
META_KIND = "meta"
MEMBERS_KEY = "members"
JOB_ID_CEILING_KEY = "job_id_ceiling"


class NotYet(NotMaster):
    """Not now; the same campaign may succeed a little later."""

    passes_in_s: float | None = None
    """When to ask again, where that is known."""


class NotInLog(StoreError):
    """The log does not contain this position, or never had it: load a snapshot."""


class Position(msgspec.Struct, frozen=True, order=True):
    """The position of a transaction; epochs first, then serials, which begin at 1 in each epoch (R1)."""

    epoch: int
    serial: int

    def as_int(self) -> int:
        """Return the number that ssconf, confd and queries show; it never decreases (R1)."""
        return (self.epoch << 32) + self.serial

    @classmethod
    def from_int(cls, number: int) -> "Position":
        """Return the position of such a number."""
        return cls(number >> 32, number & MAX_SERIAL)

    def following(self, epoch: int) -> "Position":
        """Return the position of the next transaction in `epoch`; Refused when serials run out."""
        if epoch > self.epoch:
            return Position(epoch, 1)
        if self.serial >= MAX_SERIAL:
            raise Refused(
                f"epoch {epoch} has no serials left; restart the master to take a new one"
            )
        return Position(epoch, self.serial + 1)


ZERO = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster of a store, and its node."""

    cluster_uuid: str
    node_uuid: NodeUuid


class Put(msgspec.Struct, frozen=True):
    """Write one row, new or not."""

    kind: str
    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True):
    """Remove one row; idempotent."""

    kind: str
    key: str


Operation: TypeAlias = Put | Delete


class Transaction(msgspec.Struct, frozen=True):
    """Changes that happen together, in order; an empty one only waits for all before it."""

    operations: tuple[Operation, ...] = ()

    def size_bytes(self) -> int:
        """Return the size that counts towards the limit; Refused for text that is not UTF-8."""
        size = 0
        try:
            for operation in self.operations:
                size += len(operation.kind.encode()) + len(operation.key.encode())
                if isinstance(operation, Put):
                    size += len(operation.value)
        except UnicodeEncodeError as error:
            raise Refused(f"the name of a row is not valid text: {error}") from None
        return size


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A transaction with its position in the order; `digest` covers the whole history up to it (R8)."""

    position: Position
    previous: Position
    digest: bytes
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a snapshot."""

    kind: str
    key: str
    value: bytes


class Receipt(msgspec.Struct, frozen=True):
    """An acknowledged transaction; `degraded` as in `Membership` (R6)."""

    position: Position
    degraded: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write in one epoch; void once a greater epoch exists."""

    epoch: int
    token: bytes = field(default=b"", repr=False)
    """Private to the back end; leases with different tokens are different."""


@dataclass(frozen=True, slots=True)
class Follower:
    """Not the master; `reason` is why the node is no longer the master, if it was."""

    reason: str = ""
    master: NodeUuid | None = None
    """The present or last master, as far as this node knows.

    It is this node if the node was the last master and waits for RESUME; a back end with its own
    elections never reports that.
    """


@dataclass(frozen=True, slots=True)
class Master:
    """The only writer, in the epoch of the lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Lost:
    """Closed permanently: the disk or its content is broken; the daemon steps down and logs the reason."""

    reason: str


Role: TypeAlias = Follower | Master | Lost


class CampaignKind(enum.Enum):
    """The ways to become the master."""

    VOTE = "vote"
    RESUME = "resume"  # a vote, if no other node has been the master since this node was
    HAND_OVER = "hand-over"  # requests that the master ends; without its answer it is a vote (R8)
    FORCE = "force"  # skips the majority, never the epoch (R10)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A request to become the master."""

    kind: CampaignKind = CampaignKind.VOTE


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of the store, and the holders of the current state."""

    master: NodeUuid | None
    """This node while it has the lease; otherwise None, or the node known to have it."""
    epoch: int
    """The master's epoch; on other nodes the greatest that the node has taken."""
    voters: frozenset[NodeUuid]
    """Nodes whose registers are asked: by every back end for the fence, by the embedded one for votes."""
    candidates: frozenset[NodeUuid]
    """Nodes that may hold the state and become the master."""
    holders: frozenset[NodeUuid]
    """Nodes that certainly have everything acknowledged from now on.

    Empty where the state is on other hosts.
    """
    degraded: bool
    """True if an acknowledged write may be lost with one node, although redundancy is possible (R6)."""
    job_id_ceiling: int
    """The greatest job id ceiling that is known to be registered or written (R12)."""
    is_any_next: bool = False
    """True if any candidate may be the next master, so that waiting for one whole set is pointless."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A node's role from now on; neither voter nor candidate removes it (R3: one at a time)."""

    node_uuid: NodeUuid
    is_voter: bool
    is_candidate: bool


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Figures for `gnt-debug`, metrics and tests."""

    role: Role
    position: Position
    digest: bytes = b""
    transactions: int = 0  # transactions since the store was opened
    syncs: int = 0  # disk syncs for these
    largest_batch: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    refused: int = 0
    is_full: bool = False
    log_entries: int = 0
    degraded: bool = False  # like `Membership`, while this node is the master


class ByteSink(Protocol):
    """The target of a backup."""

    async def write(self, data: bytes) -> None: ...


def check_transaction(txn: Transaction) -> int:
    """Return the size of a valid transaction in bytes; Refused beyond a limit."""
    if len(txn.operations) > MAX_OPERATIONS:
        raise Refused(
            f"a transaction may have {MAX_OPERATIONS} operations, not {len(txn.operations)}; split it"
        )
    size = txn.size_bytes()
    if size > MAX_TRANSACTION_BYTES:
        raise Refused(f"a transaction may have {MAX_TRANSACTION_BYTES} bytes, not {size}; split it")
    for operation in txn.operations:
        if operation.key == MEMBERS_KEY and operation.kind == META_KIND:
            raise Refused("members are changed by change_members only, one node at a time")
    return size
