"""What the merge asks a node of another cluster, and what that answers: a line of JSON each."""

import enum
from typing import Any

import msgspec

from ganeti.model import wire
from ganeti.rpc.procedures.mastership import MasterIpArgs


class Action(enum.StrEnum):
    """Everything that a node does for a merge."""

    FACTS = "facts"
    """On a master: what the merge must know of its cluster."""
    SSH_KEY = "ssh-key"
    """Root's own private key, of the first type in `names` that is there (S34)."""
    TRUST = "trust"
    """Let the key in `line` log in as root (S35)."""
    DISTRUST = "distrust"
    PAUSED = "paused"
    """What says that the watcher rests."""
    PAUSE = "pause"
    """Say so by `pause`; None: end its rest (S37)."""
    BACKUP = "backup"
    """On a running master: a backup of its state."""
    STATE = "state"
    """Where the master daemon is stopped: the same."""
    STOP_INSTANCES = "stop-instances"
    START_INSTANCES = "start-instances"
    DAEMONS = "daemons"
    """Which of them run."""
    STOP_DAEMONS = "stop-daemons"
    START_DAEMONS = "start-daemons"
    """Those in `names`."""
    MASTER_ANSWERS = "master-answers"
    """Wait until it does."""
    DROP_ADDRESS = "drop-address"
    """On the former master of a cluster that is no more: take that cluster's own address in `address` away."""
    TAKE = "take"
    """On a node of upstream: move its files to `original/`, so that the node can join."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question."""

    action: Action
    names: list[str] = []
    line: str = ""
    pause: str | None = None
    address: MasterIpArgs | None = None
    timeout_s: int = 120


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node of another cluster."""

    name: str
    address: str
    offline: bool = False
    master: bool = False


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster says of itself."""

    cluster: str
    uuid: str
    version: str
    """Of our programs there."""
    state: str
    """What keeps its state (`STATE_KINDS`)."""
    nodes: list[NodeFacts]
    instances: list[str]
    running: list[str]
    jobs: list[int]
    """Those that have not ended."""
    original: str = ""
    """The version of upstream Ganeti."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; `error` says why there is none."""

    error: str = ""
    facts: HostFacts | None = None
    names: list[str] = []
    text: str = ""
    pause: str | None = None
    data: bytes = b""

    def __repr__(self) -> str:
        return f"Reply({self.error or 'ok'})"  # `text` may be a key


def line_of(message: msgspec.Struct) -> bytes:
    """A message as it is sent."""
    return wire.encode(message) + b"\n"


def parse(data: bytes, kind: type[Any], what: str) -> Any:
    """A received message; InputError."""
    return wire.decode(data.strip(), kind, what=what)
