"""A campaign of the embedded back end: the rounds of questions that `election` judges (R7).

survey -> promises -> tails of the last sync set, fenced -> copy -> own epoch -> accepts
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
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
from ganeti.store.survey import answers_within

T = TypeVar("T")
A = TypeVar("A", Vote, Tail)

LATE_S = 0.5
"""How long a round waits for more answers once there are enough."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """The candidate of a campaign, and the connections that it uses."""

    identity: Identity
    ports: Ports
    log: LocalLog
    session: FollowerSession
    highest: HighestEpoch
    asking: set[asyncio.Task[None]] = field(default_factory=set)
    """Questions that are not answered yet, also those of rounds that have gone on without them."""

    async def close(self) -> None:
        """Ask no more."""
        for task in self.asking:
            task.cancel()
        await asyncio.gather(*self.asking, return_exceptions=True)

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
    registered_at: float
    """Time at which the voters were asked to register it, by the clock of the event loop."""


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
    epoch, survey = await _survey(mine, electing, asked)
    if kind is CampaignKind.VOTE and election.has_gone_master(survey):
        kind = CampaignKind.HAND_OVER  # as if it had agreed
    request = PromiseRequest(mine.identity.cluster_uuid, epoch, mine.node)
    ballot = await _ask(
        mine,
        electing,
        asked,
        lambda node: voters.promise(node, request, kind),
        lambda votes: election.judge_promises(electing, votes),
        responsive=_answered(survey),
    )
    accepted = _judged(election.judge_promises(electing, ballot))
    for node, calls in election.older_calls(ballot).items():
        _log.info("node %s still carries out calls of an earlier master: %s", node, calls)
    mine.highest.sees(epoch)
    await mine.session.end()
    # The members may have been read before a snapshot was complete.
    await log.read_members()
    tails = await _tails(mine, electing, accepted, epoch, _answered(ballot))
    source = _judged(election.choose_source(electing, accepted, tails))
    if source != mine.node:
        await _copy(mine, source, epoch)
        await log.read_members()
        tails[mine.node] = mine.tail
    if refusal := election.is_demoted(electing, log.members.candidates):
        raise NotMaster(refusal.reason)
    mine.highest.check(epoch)
    await log.keep_epoch(epoch)
    ceiling = election.greatest_ceiling(ballot, epoch, await log.stored_ceiling())
    first = election.first_registration(electing, epoch, accepted, tails, ceiling)
    registered_at = asyncio.get_running_loop().time()
    is_elected = await _register(mine, electing, first, _answered(ballot))
    mine.highest.check(epoch)
    return Elected(first, forced=not is_elected, registered_at=registered_at)


async def _survey(
    mine: Candidate, electing: Electing, asked: frozenset[NodeUuid]
) -> tuple[int, Ballot]:
    """Return the epoch to ask for, and the registers; NotMaster.

    Nodes without a vote are asked after the voters, and only if there will be a request.
    """
    log = mine.log
    taken = max(log.epoch, log.tail.position.epoch)

    def judge(survey: Ballot) -> int | Refusal:
        others = {node: vote for node, vote in survey.items() if node not in asked}
        ballot = mine.session.with_local_heartbeat({node: survey[node] for node in asked})
        return election.judge_survey(electing, ballot, taken, others)

    read = mine.ports.voters.read
    survey = await _ask(mine, electing, asked, read, judge, responsive=asked)
    _judged(judge(survey))
    is_forced = electing.kind is CampaignKind.FORCE
    survey |= await answers_within(None if is_forced else LATE_S, mine.ports.nodes() - asked, read)
    epoch = _judged(judge(survey))
    for node, found in election.without_outliers(survey, taken, electing.voters).items():
        if isinstance(found, NoVote) and isinstance(survey[node], Vote):
            _log.warning("node %s: %s", node, found.reason)
    return epoch, survey


async def _ask(
    mine: Candidate,
    electing: Electing,
    nodes: Collection[NodeUuid],
    question: Callable[[NodeUuid], Awaitable[A | NoVote]],
    judge: Callable[[Mapping[NodeUuid, A | NoVote]], object],
    *,
    responsive: Collection[NodeUuid],
) -> dict[NodeUuid, A | NoVote]:
    """Return the answers: all of them, or enough, and those of `responsive` nodes that come within `LATE_S`.

    There are enough when `judge` gives no refusal, or one that only time changes. A silent node is asked in each
    round and holds up none. Force waits for all: any node may have more of the state.
    """
    is_forced = electing.kind is CampaignKind.FORCE
    answers: dict[NodeUuid, A | NoVote] = dict.fromkeys(nodes, NoVote("no answer yet"))
    asking = {
        node: asyncio.create_task(_answer(question, node, answers), name=f"ask {node}")
        for node in sorted(nodes)
    }
    for task in asking.values():
        mine.asking.add(task)
        task.add_done_callback(mine.asking.discard)
    while pending := [task for task in asking.values() if not task.done()]:
        if not is_forced and _is_enough(judge(answers)):
            late = [task for node, task in asking.items() if node in responsive]
            if late:
                await asyncio.wait(late, timeout=LATE_S)
            break
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    for task in asking.values():
        if task.done():
            task.result()
    return dict(answers)


def _answered(ballot: Ballot) -> frozenset[NodeUuid]:
    return frozenset(node for node, vote in ballot.items() if isinstance(vote, Vote))


def _is_enough(verdict: object) -> bool:
    return not isinstance(verdict, Refusal) or verdict.passes_in_s is not None


async def _answer(
    question: Callable[[NodeUuid], Awaitable[A | NoVote]],
    node: NodeUuid,
    answers: dict[NodeUuid, A | NoVote],
) -> None:
    answers[node] = await question(node)


async def _tails(
    mine: Candidate,
    electing: Electing,
    accepted: Accepted | None,
    epoch: int,
    responsive: Collection[NodeUuid],
) -> dict[NodeUuid, Tail]:
    """Fence the members of the last sync set, and return the ends of their histories (R7)."""
    wanted = accepted.sync_set if accepted else frozenset[NodeUuid]()
    if electing.kind is CampaignKind.FORCE:
        wanted |= mine.log.members.candidates

    def known(answers: Mapping[NodeUuid, Tail | NoVote]) -> dict[NodeUuid, Tail]:
        tails = {node: tail for node, tail in answers.items() if isinstance(tail, Tail)}
        return {**tails, mine.node: mine.tail}

    return known(
        await _ask(
            mine,
            electing,
            wanted - {mine.node},
            lambda node: _fenced_tail(mine, node, epoch),
            lambda answers: election.choose_source(electing, accepted, known(answers)),
            responsive=responsive,
        )
    )


async def _fenced_tail(mine: Candidate, node: NodeUuid, epoch: int) -> Tail | NoVote:
    try:
        channel = await mine.ports.peers.connect(node)
        try:
            return await _greet(mine, channel, epoch)
        finally:
            channel.close()
    except (ChannelClosed, TimeoutError) as err:
        why = str(err) or "no answer"
        _log.info("candidate %s cannot be fenced: %s", node, why)
        return NoVote(why)


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


async def _register(
    mine: Candidate, electing: Electing, first: Accepted, responsive: Collection[NodeUuid]
) -> bool:
    """Return whether a majority has registered it; a master by force may lack one."""
    request = AcceptRequest(mine.identity.cluster_uuid, first)
    voters = mine.ports.voters
    by_vote = replace(electing, kind=CampaignKind.VOTE)
    ballot = await _ask(
        mine,
        electing,
        first.voters | {mine.node},
        lambda node: voters.accept(node, request),
        lambda votes: election.judge_accepts(by_vote, votes, first.voters),
        responsive=responsive,
    )
    refusal = election.judge_accepts(electing, ballot, first.voters)
    if refusal is not None:
        raise NotMaster(refusal.reason)
    return election.judge_accepts(by_vote, ballot, first.voters) is None


def _judged(verdict: T | Refusal) -> T:
    """Return the judgement; NotMaster with the reason of a refusal."""
    if not isinstance(verdict, Refusal):
        return verdict
    if verdict.passes_in_s is None:
        raise NotMaster(verdict.reason)
    not_yet = NotYet(verdict.reason)
    not_yet.passes_in_s = verdict.passes_in_s
    raise not_yet
