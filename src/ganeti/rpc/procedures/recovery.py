"""The heartbeat of automatic recovery: the node's lease, its watchdog and its guests (D7)."""

from ganeti.model.objects import Node
from ganeti.model.recovery import DiskRequest, GuestFault, Token
from ganeti.rpc.procedures.form import Message, Procedure

BEAT_DEADLINE_S = 4.0
"""How long an answer to a heartbeat may take. The next heartbeat does not wait for it."""


class HeartbeatArgs(Message, frozen=True, kw_only=True):
    """A token that the master returns, and what it wants to know."""

    token: Token | None = None
    """From the node's last answer; None: the lease is not renewed."""
    protected: tuple[str, ...] = ()
    """UUIDs of the instances whose guests may run here under the lease only; the list is as old as the token.

    Listed guests are killed when the lease is over: before the master stops its heartbeats it sends an empty list.
    """
    as_of: int = 0
    """The position of the configuration that has this list; 0 from a master of an earlier version."""
    wanted: tuple[str, ...] = ()
    """UUIDs of those whose guests should run here: a guest of theirs that has ended has crashed."""
    mirrored: dict[str, int] = {}
    """The mirrored disks that this node writes, and whose copies are counted by grants: UUID -> generation."""
    kinds: tuple[str, ...] = ("drop", "join")
    """The kinds of requests about these disks that the master knows; a master of an earlier version knows two."""


class HeartbeatResult(Message, frozen=True, kw_only=True):
    """A node's answer."""

    token: Token
    is_armed: bool
    """A watchdog resets the machine if protected guests outlive the lease."""
    why_unarmed: str = ""
    """Why no watchdog does, and what an administrator can do."""
    faults: dict[str, GuestFault] = {}
    """Instances by UUID whose guests failed, until they run again."""
    requests: tuple[DiskRequest, ...] = ()
    """About the mirrored disks, as long as they are not answered."""


# The handler itself checks the master: it must answer while the register's disk hangs.
HEARTBEAT = Procedure("heartbeat", HeartbeatArgs, HeartbeatResult, BEAT_DEADLINE_S, changes=False)


class RelayArgs(Message, frozen=True, kw_only=True):
    """A heartbeat for a node that does not answer the master."""

    node: Node
    heartbeat: HeartbeatArgs


# A node refuses the calls of nodes that are not master candidates, so only candidates relay.
RELAY_HEARTBEAT = Procedure(
    "relay_heartbeat", RelayArgs, HeartbeatResult, BEAT_DEADLINE_S, changes=False
)
