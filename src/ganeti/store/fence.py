"""The epoch on the registers of the nodes, promised and renewed for the master of any back end."""

import asyncio
from collections.abc import Awaitable, Callable

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import Fence
from ganeti.store.election import NoVote, QuorumLease, Vote, has_quorum
from ganeti.store.interface import Identity
from ganeti.store.reason import Reason, joined
from ganeti.store.stream import Voters

RENEW_S = 2.0
"""How often a master renews its epoch."""
PROMISE_S = 30.0
"""How long a new master waits for a majority."""
RETRY_S = 0.5


class RegisterFence:
    """The `Fence` of a back end that elects without the registers.

    `counted` says whose registers count: `Membership.voters`, of nodes that the voters' port knows.
    """

    def __init__(
        self,
        identity: Identity,
        voters: Voters,
        counted: Callable[[], Awaitable[frozenset[NodeUuid]]],
    ) -> None:
        self._identity, self._voters, self._counted = identity, voters, counted
        self._quorum: QuorumLease | None = None

    async def greatest_promised(self) -> int:
        """The greatest epoch that any register which answers has promised: a new one is greater."""
        nodes = sorted(await self._counted())
        votes = await asyncio.gather(*(self._voters.read(node) for node in nodes))
        known = (vote.register.promised.epoch for vote in votes if isinstance(vote, Vote))
        return max(known, default=0)

    async def promise(self, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PROMISE_S
        while True:
            nodes = await self._counted()
            asked_at = loop.time()
            agreed, silent = await self._round(nodes, epoch)
            if has_quorum(agreed | {self._identity.node_uuid}, nodes):
                break
            if loop.time() >= end:
                reasons = [Reason("node {}: {}", *lacks) for lacks in sorted(silent.items())]
                raise NotMaster(
                    Reason(
                        f"only {len(agreed)} of {len(nodes)} nodes have promised epoch {epoch} to this"
                        " master, which is no majority ({}): bring back as many as lack",
                        joined("; ", reasons),
                    )
                )
            await asyncio.sleep(RETRY_S)
        self._quorum = QuorumLease(self._identity.node_uuid, nodes, forced=False, now=asked_at)

    async def renew(self, epoch: int) -> None:
        quorum = self._quorum
        if quorum is None:
            raise NotMaster(f"epoch {epoch} was not promised to this node")
        loop = asyncio.get_running_loop()
        nodes = await self._counted()
        if nodes != quorum.voters:
            quorum.voters_are(nodes, loop.time())
        asked_at = loop.time()
        agreed, _ = await self._round(nodes, epoch)
        for node in agreed:
            quorum.agreed(node, asked_at)
        if quorum.is_over(loop.time()):
            raise NotMaster("no majority of the nodes was heard for 10 s")

    async def _round(
        self, nodes: frozenset[NodeUuid], epoch: int
    ) -> tuple[set[NodeUuid], dict[NodeUuid, str]]:
        """Who has promised the epoch now, and why the others have not; NotMaster for a greater one."""
        asked = sorted(nodes)
        cluster = self._identity.cluster_uuid
        votes = await asyncio.gather(*(self._voters.renew(node, cluster, epoch) for node in asked))
        agreed: set[NodeUuid] = set()
        silent: dict[NodeUuid, str] = {}
        for node, vote in zip(asked, votes, strict=True):
            if isinstance(vote, NoVote) or not vote.granted:
                silent[node] = vote.reason
            else:
                agreed.add(node)
            if isinstance(vote, Vote) and vote.register.promised.epoch > epoch:
                promised = vote.register.promised.epoch
                raise NotMaster(Reason(f"node {{}} has promised epoch {promised}", node))
        return agreed, silent


async def keep_promised(fence: Fence, epoch: int) -> str:
    """Renew until that fails, and say why: the master steps down then."""
    try:
        while True:
            await fence.renew(epoch)
            await asyncio.sleep(RENEW_S)
    except GanetiError as err:
        return err.message
