"""The messages between the merge and a node of another cluster: a line of JSON each."""

import enum
from typing import Any

import msgspec

from ganeti.model import wire
from ganeti.rpc.procedures.mastership import MasterIpArgs


class Action(enum.StrEnum):
    """The actions that a node carries out for a merge."""

    FACTS = "facts"
    """On a master: return the facts about its cluster."""
    SSH_KEY = "ssh-key"
    """Return root's private key, of the first existing type in `names` (S34)."""
    TRUST = "trust"
    """Allow root logins with the key in `line` (S35)."""
    DISTRUST = "distrust"
    PAUSED = "paused"
    """Return the pause of the watcher."""
    PAUSE = "pause"
    """Set the watcher's pause to `pause`; None: end it (S37)."""
    BACKUP = "backup"
    """On a running master: return a backup of its state."""
    STATE = "state"
    """Return a backup of the state of a node whose master daemon is stopped."""
    STOP_INSTANCES = "stop-instances"
    START_INSTANCES = "start-instances"
    DAEMONS = "daemons"
    """Return the running daemons."""
    STOP_DAEMONS = "stop-daemons"
    START_DAEMONS = "start-daemons"
    """Start the daemons in `names`."""
    MASTER_ANSWERS = "master-answers"
    """Wait until the master answers."""
    DROP_ADDRESS = "drop-address"
    """On the former master of a merged cluster: remove that cluster's own address in `address`."""
    TAKE = "take"
    """On a node of upstream: move its files to `original/`, so that the node can join."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a node."""

    action: Action
    names: list[str] = []
    line: str = ""
    pause: str | None = None
    address: MasterIpArgs | None = None
    timeout_s: int = 120


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node of another cluster."""

    name: str
    address: str
    offline: bool = False
    master: bool = False


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a cluster."""

    cluster: str
    uuid: str
    version: str
    """The version of this implementation there."""
    state: str
    """The back end of its state (`STATE_KINDS`)."""
    nodes: list[NodeFacts]
    instances: list[str]
    running: list[str]
    jobs: list[int]
    """Jobs that have not ended."""
    original: str = ""
    """The version of upstream Ganeti."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer; `error` is the reason of a failure."""

    error: str = ""
    facts: HostFacts | None = None
    names: list[str] = []
    text: str = ""
    pause: str | None = None
    data: bytes = b""

    def __repr__(self) -> str:
        return f"Reply({self.error or 'ok'})"  # `text` may be a key


def line_of(message: msgspec.Struct) -> bytes:
    """Return the line of a message."""
    return wire.encode(message) + b"\n"


def parse(data: bytes, kind: type[Any], what: str) -> Any:
    """Return the message of a received line; InputError."""
    return wire.decode(data.strip(), kind, what=what)
