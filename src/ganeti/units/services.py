"""What the master has, for all units and for undo steps."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.objects import Node, NodeUuid
from ganeti.query.execute import QueryExecutor
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.procedures.hooks import HookDirectory
from ganeti.store.backends import ServerFault
from ganeti.units.calls import Rpc
from ganeti.units.node_data import NodeData
from ganeti.units.placements import Placements


class SsconfFiles(Protocol):
    """The facts that nodes have as files (`ganeti.config.ssconf_writer.SsconfDistributor`)."""

    @property
    def position(self) -> int:
        """Position of the configuration that the files of all online nodes show at least."""
        ...

    async def push_now(self, node: Node) -> None:
        """Give one node the files of this moment; GanetiError if it does not have them then."""
        ...

    async def settle(self, limit_s: float) -> list[str]:
        """Wait until all online nodes have the files of this moment; names of those that have not in time."""
        ...


class Candidates(Protocol):
    """What a master candidate has beyond the flag in the configuration: the state and its daemon."""

    async def promote(self, node: Node) -> None:
        """Make a node fit to be a candidate, before its flag is set; GanetiError if it is not then.

        May be repeated; a node that was made fit and got no flag is a node that `demote` was not called for.
        """
        ...

    async def demote(self, node: Node) -> None:
        """Take from a node what a candidate has, after its flag was cleared; GanetiError if it still has it."""
        ...

    async def enforce(self, node: Node) -> None:
        """Make the table of roles (`ganeti.base.roles`) true on a node; GanetiError where that fails."""
        ...


class BuiltInAllocator(Protocol):
    """The allocator that needs no program (`ganeti.daemons.built_in_allocator`)."""

    async def answer(
        self, message: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """success, info and result; None if a program of its name is to be run instead."""
        ...

    async def explain(
        self, message: dict[str, Any], chosen: list[str], options: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return why each node that is not among `chosen` is not: (node, reason)."""
        ...


async def no_faults() -> Sequence[ServerFault]:
    """Of a state that needs no servers."""
    return ()


@dataclass(frozen=True)
class RegisterState:
    """How a node answered when the master last confirmed its epoch there."""

    node: NodeUuid
    has_vote: bool
    seconds: float
    promised: int = 0
    """An epoch that the node's register has promised and that excludes this master; 0 if there is none."""
    promised_to: NodeUuid | None = None
    """The node that lost the vote for this master's epoch and has this promise; None where the epoch is greater."""
    silent: str = ""
    """Why the node gave no answer."""


async def no_registers() -> Sequence[RegisterState]:
    """Return nothing, for a master that asks no other node."""
    return ()


class Renewal(Protocol):
    """New keys and certificates for nodes (`ganeti.daemons.renewal`); node -> why it has none yet."""

    async def renew(self, *, authority: bool) -> dict[str, str]:
        """New certificates for all nodes, of a new authority too; PrereqError where that is not possible."""
        ...

    async def renew_confd_key(self) -> dict[str, str]:
        """A new key for confd on all candidates."""
        ...


def no_secret() -> str:
    """Return where no other cluster is known."""
    raise PrereqError(
        "this cluster has no domain secret, which both clusters of a move must have; to make one:"
        " gnt-cluster renew-crypto --new-cluster-domain-secret",
        ErrorCode.WRONG_STATE,
    )


@dataclass(frozen=True)
class Services:
    """The master's means."""

    config: Config
    rpc: Rpc
    ids: IdSource
    clock: Clock
    placements: Placements
    ssconf: SsconfFiles
    candidates: Candidates
    is_degraded: Callable[[], bool] = lambda: False
    """Whether what is written now has one copy only (R6)."""
    state_faults: Callable[[], Awaitable[Sequence[ServerFault]]] = no_faults
    """Asks the servers of the state how they are."""
    registers: Callable[[], Awaitable[Sequence[RegisterState]]] = no_registers
    """Returns how the nodes answer the master's renewals of its epoch."""
    pending_undo: Callable[[], Sequence[PendingStep]] = tuple
    """What ended jobs could not undo so far."""
    domain_secret: Callable[[], str] = no_secret
    """What clusters share that instances move between; PrereqError if there is none."""
    own_hooks: Callable[[], list[HookDirectory]] | None = None
    """Looks at the hooks of the master's node; None: its node daemon is asked."""
    hook_reports: HookReports = field(default_factory=HookReports)
    """What nodes report about their hooks beside their answers."""
    node_data: NodeData = field(default_factory=NodeData)
    built_in: BuiltInAllocator | None = None
    """None: every allocator is a program."""
    renewal: Renewal | None = None
    queries: Callable[[], QueryExecutor | None] = lambda: None
    """Answers questions as LUXI does; None while the master begins."""
