"""The back ends of the state: the facts that each one gives, and the back end of a node.

Each node chooses for itself (`StateSettings`); without that file the state is embedded.
`STATE_KINDS` names the back ends, one a line; the module that it names has a `BackEnd` as
`BACK_END`. All other code accesses a back end through these.
"""

import abc
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from ganeti.base.errors import InputError, StoreError
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import STATE_KINDS, ExternalServers
from ganeti.model.objects import Node, NodeUuid
from ganeti.store.backend import StateBackend, StateRestorer
from ganeti.store.interface import Identity, Position
from ganeti.store.ports import OpenedState, Ports, alone
from ganeti.store.register import (
    Answer,
    PromiseRequest,
    Register,
    RegisterFile,
    RegisterKeeper,
    join,
)
from ganeti.store.settings import StateSettings, state_settings


@dataclass(frozen=True)
class Founding:
    """Data that a back end needs to start on a single node."""

    kind: str
    """The name of the back end in `STATE_KINDS`."""
    paths: Paths
    identity: Identity
    address: str
    now: float
    start_server: Callable[[], Awaitable[object]]
    """Start the daemon of the back end's server (`StateKind.server`) on this node."""
    external: ExternalServers | None = None
    """Servers that the administrator runs, where the back end is to use these."""


@dataclass(frozen=True)
class CandidateState:
    """Facts about the state that a new candidate needs."""

    settings: StateSettings | None = None
    """None where the candidates themselves have the state."""
    server: str = ""
    """Settings of the server that the candidate is to run, for `BackEnd.prepare_server`; '' without one."""


class ServerReport(Protocol):
    """A candidate's report about its own server."""

    @property
    def has_data(self) -> bool: ...
    @property
    def free_bytes(self) -> int: ...


Reports = Callable[[Sequence[Node]], Awaitable[Mapping[NodeUuid, ServerReport]]]
"""Asks nodes for reports of their servers; nodes that do not answer are missing."""


@dataclass(frozen=True)
class ServerFault:
    """A problem of a state server, and its remedy."""

    node: str
    """Its node's name; '' where the server is not on a node of the cluster."""
    text: str
    is_error: bool = True


class StateServers:
    """The servers of the candidates, as the master changes them.

    A back end without servers has none to change.
    """

    def __init__(self, settings: StateSettings | None = None) -> None:
        """`settings` must be known to every candidate; None: the candidates themselves have the state."""
        self._settings = settings

    async def admit(self, node: Node) -> CandidateState:
        """Add a member for the node's server; GanetiError, also while the last change is too recent."""
        return CandidateState(self._settings)

    async def settle(self, node: Node) -> None:
        """Return once the node's server counts as one; GanetiError if it does not in time."""

    async def dismiss_others(self, candidates: frozenset[NodeUuid], nodes: list[Node]) -> None:
        """Remove at most one server whose node is not a candidate any more; GanetiError."""

    async def lost(self, nodes: Iterable[Node]) -> frozenset[NodeUuid]:
        """Return the candidates whose servers report that their data is lost; GanetiError."""
        return frozenset()

    async def faults(self, candidates: Sequence[Node]) -> list[ServerFault]:
        """Return the problems of the servers, with their remedies."""
        return []

    async def close(self) -> None:
        """Close all connections."""


class StateSink(Protocol):
    """Receiver of the data that a `StateReader` reads."""

    kinds: Collection[str]
    """The kinds of rows to read."""

    def begin(self) -> None:
        """Delete everything: all rows are put again before the next `reached`."""
        ...

    def put(self, kind: str, key: str, value: bytes) -> None: ...
    def delete(self, kind: str, key: str) -> None: ...

    def reached(self, position: Position) -> None:
        """Publish all changes since the last call, at once."""
        ...


class StateReader(Protocol):
    """A reader of a state on servers; it does not take part in the election."""

    async def follow(self, sink: StateSink) -> None:
        """Read everything, then follow the changes.

        Returns when everything must be read again. StoreError, ProtocolError.
        """
        ...

    async def close(self) -> None: ...


class BackEnd(abc.ABC):
    """The differences between the ways to store the state.

    Methods that are not abstract are for servers only.
    """

    @abc.abstractmethod
    async def open(self, paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
        """Open this node's state as a follower; StoreError gives the reason of a failure."""

    @abc.abstractmethod
    def restorer(
        self, paths: Paths, identity: Identity, settings: StateSettings
    ) -> StateRestorer: ...

    async def create_state(self, founding: Founding) -> StateSettings:
        """Prepare a new state, and return its settings. HostError, StoreError.

        The caller writes the settings once the state exists.
        """
        if founding.external is not None:
            raise InputError("this back end of the state has no servers", "state_urls")
        return StateSettings(kind=founding.kind)

    def leaving(
        self, paths: Paths, identity: Identity, settings: StateSettings
    ) -> AbstractAsyncContextManager[None]:
        """Prevent elections for the block, while the state moves to another back end.

        Elections are possible again after the block if this back end still has the state.
        """
        return contextlib.nullcontext()

    async def resume(self, paths: Paths, identity: Identity, settings: StateSettings) -> None:
        """Undo an interrupted move to another back end; this node is the next master."""

    def retire(self, paths: Paths) -> None:
        """Remove this back end's data on a node whose state is elsewhere now; idempotent."""

    def servers(
        self, paths: Paths, cluster_uuid: str, settings: StateSettings, reports: Reports
    ) -> StateServers:
        """Return the master's view of the servers."""
        return StateServers(settings if settings != StateSettings() else None)

    def check_server(self, server: str) -> None:
        """Raise InputError for settings of a server that this node cannot run."""
        if server:
            raise InputError("this back end of the state has no servers", "server")

    def prepare_server(self, paths: Paths, server: str) -> None:
        """Prepare this node for its server; a server with data keeps its first settings. OSError."""

    def has_data(self, paths: Paths) -> bool:
        """Return whether a server of this node has started before, and its data still exists."""
        return False

    def reader(self, paths: Paths, settings: StateSettings, cluster_uuid: str) -> StateReader:
        """Return the reader of a state on servers; StoreError."""
        raise StoreError("this back end of the state is read from the node's own database")


def back_end(kind: str) -> BackEnd:
    """Return one of `STATE_KINDS`; imports its module."""
    found: BackEnd = import_module(STATE_KINDS[kind].module).BACK_END
    return found


def own_back_end(paths: Paths) -> BackEnd:
    """Return the back end of this node's state; ConfigurationError if the setting is damaged."""
    return back_end(state_settings(paths).kind)


def free_bytes(paths: Paths) -> int:
    """Return the free space on the disk of the node's server, or else of its own state. OSError."""
    servers = [kind.server for kind in STATE_KINDS.values() if kind.server is not None]
    used = [server.directory(paths) for server in servers if server.directory(paths).exists()]
    return shutil.disk_usage(used[0] if used else paths.data).free


async def open_state(paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
    """Open this node's state as a follower.

    StoreError if it is damaged, in use, or of another cluster; ConfigurationError if the setting is
    damaged.
    """
    return await own_back_end(paths).open(paths, identity, ports)


async def open_alone(paths: Paths, identity: Identity) -> StateBackend:
    """Open the state of a single-node cluster while no daemon runs; raises like `open_state`.

    Creates the node's register if it has none.
    """
    register = RegisterFile(paths.register)
    join_cluster(register, identity)
    opened = await open_state(paths, identity, alone(identity.node_uuid, register))
    return opened.backend


def join_cluster(keeper: RegisterKeeper, identity: Identity) -> None:
    """Add this node's register to the cluster; idempotent. StoreError if it is in another cluster."""
    request = PromiseRequest(identity.cluster_uuid, 0, identity.node_uuid)

    def rule(register: Register | None) -> Answer:
        if register is not None and register.cluster_uuid == identity.cluster_uuid:
            return Answer(True, register)
        return join(register, request)

    answer = keeper.decide(rule)
    if not answer.granted:
        raise StoreError(f"this node's register refused: {answer.reason}")


def state_restorer(paths: Paths, identity: Identity) -> StateRestorer:
    """Return the restorer of backups for this node's state; raises like `open_state`."""
    settings = state_settings(paths)
    return back_end(settings.kind).restorer(paths, identity, settings)
