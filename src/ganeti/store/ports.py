"""The connections of a back end to other nodes and to its own node's register; `daemons` creates them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ganeti.base.errors import GanetiError
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import Fence, StateBackend
from ganeti.store.election import NoVote, Vote, Voter, vote
from ganeti.store.interface import CampaignKind
from ganeti.store.register import (
    AcceptRequest,
    Answer,
    PromiseRequest,
    Register,
    RegisterKeeper,
    accept,
    check_epoch,
)
from ganeti.store.stream import Channel, ChannelClosed, Handler, Peers, Purpose, Voters
from ganeti.store.worker import Worker

T = TypeVar("T")


@dataclass(frozen=True)
class Ports:
    """The registers of all nodes, the daemons of the candidates, and this node's own register."""

    voters: Voters
    peers: Peers
    register: RegisterKeeper
    worker: Worker | None = None
    """The thread for reads and decisions of the register, which sync; without one they run on the loop."""
    nodes: Callable[[], frozenset[NodeUuid]] = frozenset
    """Nodes that are not offline: a new epoch must exceed the promises of those without a vote, too."""

    async def beside(self, function: Callable[[], T]) -> T:
        """Run a function that may block on the register's file."""
        return await self.worker.call(function) if self.worker else function()


@dataclass(frozen=True)
class OpenedState:
    """A back end that is open on this node, initially as a follower."""

    backend: StateBackend
    fence: Fence
    handlers: Mapping[Purpose, Handler]
    """The handlers of calls from other candidates, by purpose."""
    master_hung_up: Callable[[], Awaitable[None]] | None = None
    """Called when a connection from the master's daemon has ended: that daemon may be gone."""


class LocalVoter:
    """The register of this node as one of the voters; all others give no answer."""

    def __init__(
        self,
        own: NodeUuid,
        keeper: RegisterKeeper,
        worker: Worker | None = None,
        describe: Callable[[], Voter] = Voter,
    ) -> None:
        """`describe` returns this node's report about itself, which accompanies each vote."""
        self._own, self._keeper, self._worker = own, keeper, worker
        self._describe = describe

    async def read(self, node: NodeUuid) -> Vote | NoVote:
        return await self._decide(node, lambda old: Answer(granted=old is not None, register=old))

    async def promise(
        self, node: NodeUuid, request: PromiseRequest, kind: CampaignKind
    ) -> Vote | NoVote:
        return await self._decide(node, lambda old: vote(old, request, kind, None))

    async def accept(self, node: NodeUuid, request: AcceptRequest) -> Vote | NoVote:
        return await self._decide(node, lambda old: accept(old, request))

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        del cluster_uuid  # the register on this node belongs to the cluster of its daemon
        return await self._decide(node, lambda old: check_epoch(old, epoch, self._own))

    async def _decide(
        self, node: NodeUuid, rule: Callable[[Register | None], Answer]
    ) -> Vote | NoVote:
        if node != self._own:
            return NoVote("it was not asked")
        keeper = self._keeper
        try:
            if self._worker:
                answer = await self._worker.call(lambda: keeper.decide(rule))
            else:
                answer = keeper.decide(rule)
        except GanetiError as err:
            return NoVote(err.message)
        if answer.register is None:
            return NoVote(answer.reason or "the node has not joined a cluster")
        return Vote(answer.granted, answer.register, answer.reason, voter=self._describe())


class NoPeers:
    """The other candidates of a new cluster: it has none."""

    async def connect(self, node: NodeUuid) -> Channel:
        raise ChannelClosed(f"node {node} cannot be reached while the cluster is created")


def alone(own: NodeUuid, keeper: RegisterKeeper, worker: Worker | None = None) -> Ports:
    """Return the ports of a single-node cluster, whose own register is the only voter."""
    return Ports(LocalVoter(own, keeper, worker), NoPeers(), keeper, worker)
