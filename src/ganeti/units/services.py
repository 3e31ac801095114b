"""The master's services for all units and for undo steps."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.fencing import PowerStatus
from ganeti.model.objects import InstanceUuid, Node, NodeUuid
from ganeti.model.webhook import Webhook
from ganeti.protocols.webhook import Happened
from ganeti.query.execute import QueryExecutor
from ganeti.recovery.power import Power
from ganeti.recovery.status import RecoveryStatus
from ganeti.rpc.hook_reports import HookReports
from ganeti.rpc.procedures.hooks import HookDirectory
from ganeti.store.backends import ServerFault
from ganeti.units.calls import Rpc
from ganeti.units.instance_texts import KeptTexts
from ganeti.units.node_data import NodeData
from ganeti.units.node_texts import KeptNodeTexts
from ganeti.units.placements import Placements
from ganeti.units.shared_queries import SharedQueries


class SsconfFiles(Protocol):
    """The facts that nodes store as files (`ganeti.config.ssconf_writer.SsconfDistributor`)."""

    @property
    def position(self) -> int:
        """The oldest position of the configuration in the files of all online nodes."""
        ...

    async def push_now(self, node: Node) -> None:
        """Send one node the present files; GanetiError if it does not have them afterwards."""
        ...

    async def settle(self, limit_s: float) -> list[str]:
        """Wait until all online nodes have the present files; return names of those that lack them at the timeout."""
        ...


class Candidates(Protocol):
    """The data and daemons of a master candidate beyond the flag in the configuration."""

    async def promote(self, node: Node) -> None:
        """Prepare a node as a candidate, before its flag is set; GanetiError on failure.

        This may be repeated; a prepared node without the flag is a node for which `demote` was not called.
        """
        ...

    async def demote(self, node: Node) -> None:
        """Remove a candidate's data from a node, after its flag was cleared; GanetiError if it still has some."""
        ...

    async def enforce(self, node: Node) -> None:
        """Apply the table of roles (`ganeti.base.roles`) to a node; GanetiError on failure."""
        ...


class BuiltInAllocator(Protocol):
    """The allocator that needs no program (`ganeti.daemons.built_in_allocator`)."""

    async def answer(
        self, message: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return success, info and result; None if a program of its name must run instead."""
        ...

    async def explain(
        self, message: dict[str, Any], chosen: list[str], options: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return why the nodes that are not among `chosen` were not chosen: (node, reason)."""
        ...


async def no_faults() -> Sequence[ServerFault]:
    """Return no servers, for a state without any."""
    return ()


@dataclass(frozen=True)
class RegisterState:
    """A node's answer when the master last confirmed its epoch there."""

    node: NodeUuid
    has_vote: bool
    seconds: float
    promised: int = 0
    """An epoch that the node's register has promised and that excludes this master; 0 if there is none."""
    promised_to: NodeUuid | None = None
    """The node that lost the vote for this master's epoch and has this promise; None where the epoch is greater."""
    silent: str = ""
    """Why the node did not answer."""


async def no_registers() -> Sequence[RegisterState]:
    """Return nothing, for a master that queries no other node."""
    return ()


class Renewal(Protocol):
    """New keys and certificates for nodes (`ganeti.daemons.renewal`); node -> why it has none yet."""

    async def renew(self, *, authority: bool) -> dict[str, str]:
        """Renew the certificates of all nodes, and the authority on request; PrereqError if that is not possible."""
        ...

    async def renew_confd_key(self) -> dict[str, str]:
        """Renew confd's key on all candidates."""
        ...


class Posted(NamedTuple):
    """The outcome of one request of a webhook."""

    status: int
    """The status of the answer; 0 without one."""
    seconds: float
    error: str = ""
    """The reason why the events are not delivered; empty after a success."""


class WebhookPost(Protocol):
    """Requests of webhooks (`ganeti.daemons.webhook_post.WebhookPoster`)."""

    async def __call__(
        self, cluster: str, webhook: Webhook, delivery: str, events: Sequence[Happened], /
    ) -> Posted:
        """Send events in one request; never raises because of the receiver."""
        ...


class RecoveryService(Protocol):
    """Automatic recovery of protected instances (`ganeti.daemons.recovery.RecoveryDriver`)."""

    def status(self) -> RecoveryStatus:
        """Return the state of each watched node and each protected instance; empty while nothing is watched."""
        ...

    async def confirm_fenced(self, node: NodeUuid, by: str) -> None:
        """Accept an administrator's word that a lost node is off; return once that is durable.

        PrereqError if the node is not lost.
        """
        ...

    def letting_join(self, instance: InstanceUuid) -> AbstractContextManager[None]:
        """Let synchronised copies of disks count as current within the block, although a job holds the instance."""
        ...


NOT_LOST = (
    "automatic recovery does not count this node as lost, so there is nothing to confirm; see:"
    " gnt-cluster ha-status"
)


class NothingWatched:
    """The `RecoveryService` of a cluster without protected instances."""

    def status(self) -> RecoveryStatus:
        return RecoveryStatus()

    async def confirm_fenced(self, node: NodeUuid, by: str) -> None:
        del node, by
        raise PrereqError(NOT_LOST, ErrorCode.WRONG_STATE)

    def letting_join(self, instance: InstanceUuid) -> AbstractContextManager[None]:
        del instance
        return nullcontext()


class PowerControl(Power, Protocol):
    """The power of nodes (`ganeti.daemons.fencing.PowerFencing`)."""

    async def status(self, node: NodeUuid, limit_s: float) -> PowerStatus:
        """Ask the device of a node whether the node is on; changes nothing and raises no GanetiError."""
        ...


def no_secret() -> str:
    """Raise PrereqError: no other cluster is known."""
    raise PrereqError(
        "this cluster has no domain secret, which both clusters of a move must share; to create one:"
        " gnt-cluster renew-crypto --new-cluster-domain-secret",
        ErrorCode.WRONG_STATE,
    )


@dataclass(frozen=True)
class Services:
    """The master's services."""

    config: Config
    rpc: Rpc
    ids: IdSource
    clock: Clock
    placements: Placements
    ssconf: SsconfFiles
    candidates: Candidates
    is_degraded: Callable[[], bool] = lambda: False
    """Return whether new writes have only one copy (R6)."""
    state_faults: Callable[[], Awaitable[Sequence[ServerFault]]] = no_faults
    """Returns the states of the state's servers."""
    registers: Callable[[], Awaitable[Sequence[RegisterState]]] = no_registers
    """Returns the nodes' answers to the master's renewals of its epoch."""
    pending_undo: Callable[[], Sequence[PendingStep]] = tuple
    """The undo steps that ended jobs could not run so far."""
    domain_secret: Callable[[], str] = no_secret
    """The shared secret of clusters that move instances between them; PrereqError if there is none."""
    own_hooks: Callable[[], list[HookDirectory]] | None = None
    """Reads the hooks of the master's node; None: its node daemon is queried."""
    hook_reports: HookReports = field(default_factory=HookReports)
    """The reports about hooks that nodes attach to their answers."""
    instance_texts: KeptTexts = field(default_factory=KeptTexts)
    node_texts: KeptNodeTexts = field(default_factory=KeptNodeTexts)
    node_data: NodeData = field(default_factory=NodeData)
    built_in: BuiltInAllocator | None = None
    """None: every allocator is a program."""
    renewal: Renewal | None = None
    recovery: RecoveryService = field(default_factory=NothingWatched)
    elects_master: bool = False
    """The state replaces a lost master by itself (D10)."""
    power: PowerControl | None = None
    """None: a master that switches no node off."""
    webhook_post: WebhookPost | None = None
    """Sends one request of a webhook; None: a master that sends none."""
    queries: Callable[[], QueryExecutor | None] = lambda: None
    """Answers queries as LUXI does; None while the master starts."""

    @cached_property
    def shared(self) -> SharedQueries:
        """Sends queries that many jobs ask at once."""
        return SharedQueries(self.rpc, self.placements.jobs)
