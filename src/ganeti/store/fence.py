"""The epoch in the registers of the nodes, promised to and renewed for the master of any back end."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import Fence
from ganeti.store.election import (
    NoVote,
    QuorumLease,
    Vote,
    excluded,
    has_quorum,
    ignored,
    promised_epochs,
    without_outliers,
)
from ganeti.store.epochs import ends_leader_term
from ganeti.store.interface import Identity
from ganeti.store.reason import Reason, joined
from ganeti.store.stream import Voters
from ganeti.store.survey import answers_within

RENEW_S = 2.0
"""Interval of a master's renewals of its epoch."""
PROMISE_S = 30.0
"""Time that a new master waits for a majority."""
RETRY_S = 0.5
OTHERS_S = 0.5
"""Time that nodes without a vote have for their answers."""

_log = logging.getLogger(__name__)


class Counted(Protocol):
    """The nodes whose registers count, and those of them that campaign."""

    @property
    def voters(self) -> frozenset[NodeUuid]: ...
    @property
    def candidates(self) -> frozenset[NodeUuid]: ...


class RegisterFence:
    """The `Fence` of a back end that elects without the registers.

    `counted` returns the nodes whose registers count, all known to the voters' interface; `nodes`
    returns all that are not offline.
    """

    def __init__(
        self,
        identity: Identity,
        voters: Voters,
        counted: Callable[[], Awaitable[Counted]],
        nodes: Callable[[], frozenset[NodeUuid]] = frozenset,
        *,
        holds: Callable[[int], bool],
    ) -> None:
        """`holds` is the back end's own lease: the registers do not elect."""
        self._identity, self._voters, self._counted = identity, voters, counted
        self._nodes = nodes
        self.holds = holds
        self._quorum: QuorumLease | None = None
        self._ignored: dict[NodeUuid, int] = {}
        """Promised epochs that belong to no master; each was logged once."""

    async def greatest_promised(self, taken: int) -> int:
        """Return the greatest promised epoch within bounds among the answering registers.

        The next epoch must be greater. `taken` is an epoch that a master certainly had.
        """
        voters = (await self._counted()).voters
        nodes = sorted(voters)
        votes = await asyncio.gather(*(self._voters.read(node) for node in nodes))
        others = await answers_within(OTHERS_S, self._nodes() - voters, self._voters.read)
        ballot = {**others, **dict(zip(nodes, votes, strict=True))}
        known = promised_epochs(without_outliers(ballot, taken, voters))
        for node, epoch in promised_epochs(ballot).items():
            if node not in known:
                self._ignore(node, epoch)
        return max(known.values(), default=0)

    def majority_at(self, epoch: int) -> float | None:
        del epoch  # the daemon makes promises for one epoch after the other
        return self._quorum.majority_at() if self._quorum is not None else -math.inf

    async def promise(self, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PROMISE_S
        while True:
            counted = await self._counted()
            nodes = counted.voters
            asked_at = loop.time()
            agreed, silent = await self._round(counted, epoch)
            if has_quorum(agreed | {self._identity.node_uuid}, nodes):
                break
            if loop.time() >= end:
                reasons = [Reason("node {}: {}", *lacks) for lacks in sorted(silent.items())]
                raise NotMaster(
                    Reason(
                        (
                            f"only {len(agreed)} of {len(nodes)} nodes have promised epoch "
                            f"{epoch} to this master, which is not a majority ({{}}): start "
                            "enough of the others again"
                        ),
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
        counted = await self._counted()
        if counted.voters != quorum.voters:
            quorum.voters_are(counted.voters, loop.time())
        asked_at = loop.time()
        agreed, _ = await self._round(counted, epoch)
        for node in agreed:
            quorum.agreed(node, asked_at)
        if quorum.is_over(loop.time()):
            raise NotMaster("no majority of the nodes has answered for 10 s")

    async def _round(
        self, counted: Counted, epoch: int
    ) -> tuple[set[NodeUuid], dict[NodeUuid, str]]:
        """Return the nodes that have promised the epoch, and the others with reasons.

        NotMaster where a promise excludes the epoch.
        """
        asked = sorted(counted.voters)
        cluster = self._identity.cluster_uuid
        votes = await asyncio.gather(*(self._voters.renew(node, cluster, epoch) for node in asked))
        agreed: set[NodeUuid] = set()
        silent: dict[NodeUuid, str] = {}
        for node, vote in zip(asked, votes, strict=True):
            if isinstance(vote, NoVote) or not vote.granted:
                silent[node] = vote.reason
            else:
                agreed.add(node)
            own = self._identity.node_uuid
            if isinstance(vote, Vote) and vote.register.promised.excludes(epoch, own):
                promised = vote.register.promised
                is_candidate, is_own = node in counted.candidates, node == own
                if ends_leader_term(
                    epoch, promised.epoch, is_candidate=is_candidate, is_own_register=is_own
                ):
                    raise NotMaster(excluded(node, promised))
                self._ignore(node, promised.epoch)
        return agreed, silent

    def _ignore(self, node: NodeUuid, epoch: int) -> None:
        if self._ignored.get(node) != epoch:
            self._ignored[node] = epoch
            _log.warning("node %s: %s", node, ignored(node, epoch))


async def keep_promised(fence: Fence, epoch: int) -> str:
    """Renew until a renewal fails, and return the reason: the master then steps down.

    A renewal that waits for a silent node must not make the lease run out: the next one begins on time.
    """
    loop = asyncio.get_running_loop()
    try:
        while True:
            begun = loop.time()
            await fence.renew(epoch)
            await asyncio.sleep(max(0.0, begun + RENEW_S - loop.time()))
    except GanetiError as err:
        return err.message
