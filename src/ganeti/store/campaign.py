"""A campaign of the embedded back end: the rounds of questions that `election` judges (R7).

survey -> promises -> tails of the last sync set, fenced -> copy -> own epoch -> accepts
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ganeti import __version__
from ganeti.base.errors import NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.database import HistoryDiffers
from ganeti.store.election import Ballot, Electing, NoVote, Refusal, Tail, Vote
from ganeti.store.follower import SNAPSHOT_S, FollowerSession, HighestEpoch
from ganeti.store.interface import CampaignKind, Identity, NotYet, Position
from ganeti.store.leader import ANSWER_S
from ganeti.store.local_log import LocalLog
from ganeti.store.ports import Ports
from ganeti.store.reason import Reason
from ganeti.store.register import Accepted, AcceptRequest, PromiseRequest
from ganeti.store.stream import Channel, ChannelClosed, Done, Hello, HelloAcknowledged, Pull

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """The candidate of a campaign, and the connections that it uses."""

    identity: Identity
    ports: Ports
    log: LocalLog
    session: FollowerSession
    highest: HighestEpoch

    @property
    def node(self) -> NodeUuid:
        return self.identity.node_uuid

    @property
    def tail(self) -> Tail:
        return Tail(self.log.tail.position, self.log.tail.digest)


@dataclass(frozen=True)
class Elected:
    """The registration of the new master."""

    accepted: Accepted
    forced: bool
    """True if no majority has registered it yet (R10)."""


async def run_campaign(mine: Candidate, kind: CampaignKind, last: Accepted | None) -> Elected:
    """Become the master by a vote, an agreed hand-over, or force.

    `last` is the registration in this node's register. On return the log has every acknowledged
    transaction, and the epoch is registered. Raises like `StateBackend.campaign`.
    """
    log, voters = mine.log, mine.ports.voters
    if election.has_no_state(last, log.tail.position):
        raise NotMaster(election.NO_STATE)
    members = await log.read_members()
    electing = Electing(mine.node, kind, members.voters, __version__)
    known = last.voters | last.sync_set if last else frozenset()
    asked = electing.voters | known | {mine.node}
    survey = await _ask(asked | mine.ports.nodes(), voters.read)
    others = {node: vote for node, vote in survey.items() if node not in asked}
    ballot = mine.session.with_local_heartbeat({node: survey[node] for node in asked})
    taken = max(log.epoch, log.tail.position.epoch)
    epoch = _judged(election.judge_survey(electing, ballot, taken, others))
    for node, found in election.without_outliers(survey, taken, electing.voters).items():
        if isinstance(found, NoVote) and isinstance(survey[node], Vote):
            _log.warning("node %s: %s", node, found.reason)
    request = PromiseRequest(mine.identity.cluster_uuid, epoch, mine.node)
    ballot = await _ask(frozenset(ballot), lambda node: voters.promise(node, request, kind))
    accepted = _judged(election.judge_promises(electing, ballot))
    for node, calls in election.older_calls(ballot).items():
        _log.info("node %s still carries out calls of an earlier master: %s", node, calls)
    mine.highest.sees(epoch)
    await mine.session.end()
    # The members may have been read before a snapshot was complete.
    await log.read_members()
    tails = await _tails(mine, electing, accepted, epoch)
    source = _judged(election.choose_source(electing, accepted, tails))
    if source != mine.node:
        await _copy(mine, source, epoch)
        await log.read_members()
        tails[mine.node] = mine.tail
    if refusal := election.is_demoted(electing, log.members.candidates):
        raise NotMaster(refusal.reason)
    mine.highest.check(epoch)
    await log.keep_epoch(epoch)
    ceiling = election.greatest_ceiling(ballot, await log.stored_ceiling())
    first = election.first_registration(electing, epoch, accepted, tails, ceiling)
    is_elected = await _register(mine, electing, first)
    mine.highest.check(epoch)
    return Elected(first, forced=not is_elected)


async def _ask(
    nodes: frozenset[NodeUuid], question: Callable[[NodeUuid], Awaitable[Vote | NoVote]]
) -> Ballot:
    asked = sorted(nodes)
    votes = await asyncio.gather(*(question(node) for node in asked))
    return dict(zip(asked, votes, strict=True))


async def _tails(
    mine: Candidate, electing: Electing, accepted: Accepted | None, epoch: int
) -> dict[NodeUuid, Tail]:
    """Fence the members of the last sync set, and return the ends of their histories (R7)."""
    wanted = accepted.sync_set if accepted else frozenset[NodeUuid]()
    if electing.kind is CampaignKind.FORCE:
        wanted |= mine.log.members.candidates
    others = sorted(wanted - {mine.node})
    found = await asyncio.gather(*(_fenced_tail(mine, node, epoch) for node in others))
    tails = {node: tail for node, tail in zip(others, found, strict=True) if tail is not None}
    return {**tails, mine.node: mine.tail}


async def _fenced_tail(mine: Candidate, node: NodeUuid, epoch: int) -> Tail | None:
    try:
        channel = await mine.ports.peers.connect(node)
        try:
            return await _greet(mine, channel, epoch)
        finally:
            channel.close()
    except (ChannelClosed, TimeoutError) as err:
        _log.info("candidate %s cannot be fenced: %s", node, str(err) or "no answer")
        return None


async def _greet(mine: Candidate, channel: Channel, epoch: int) -> Tail:
    async with asyncio.timeout(ANSWER_S):
        await channel.send(Hello(mine.identity.cluster_uuid, epoch, mine.node, "fence"))
        answer = await channel.receive()
    if not isinstance(answer, HelloAcknowledged):
        raise ChannelClosed(
            getattr(answer, "reason", "it does not use the protocol of the state stream")
        )
    return Tail(Position.from_int(answer.position), answer.digest)


async def _copy(mine: Candidate, source: NodeUuid, epoch: int) -> None:
    """Copy the source's history; NotMaster on failure."""
    try:
        channel = await mine.ports.peers.connect(source)
        try:
            await _greet(mine, channel, epoch)
            await channel.send(Pull(mine.tail.position.as_int(), mine.tail.digest))
            while True:
                async with asyncio.timeout(SNAPSHOT_S):
                    message = await channel.receive()
                if isinstance(message, Done):
                    return
                mine.highest.check(epoch)
                await mine.session.take(channel, message, epoch)
        finally:
            channel.close()
    except (ChannelClosed, TimeoutError, HistoryDiffers) as err:
        why = Reason("the state could not be copied from node {}: {}", source, str(err))
        raise NotMaster(why) from err


async def _register(mine: Candidate, electing: Electing, first: Accepted) -> bool:
    """Return whether a majority has registered it; a master by force may lack one."""
    request = AcceptRequest(mine.identity.cluster_uuid, first)
    voters = mine.ports.voters
    ballot = await _ask(first.voters | {mine.node}, lambda node: voters.accept(node, request))
    refusal = election.judge_accepts(electing, ballot, first.voters)
    if refusal is not None:
        raise NotMaster(refusal.reason)
    by_vote = replace(electing, kind=CampaignKind.VOTE)
    return election.judge_accepts(by_vote, ballot, first.voters) is None


def _judged(verdict: T | Refusal) -> T:
    """Return the judgement; NotMaster with the reason of a refusal."""
    if isinstance(verdict, Refusal):
        raise NotYet(verdict.reason) if verdict.may_pass else NotMaster(verdict.reason)
    return verdict
