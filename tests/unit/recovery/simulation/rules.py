"""The product's decisions as one object, and copies of it with one rule left out each."""

from collections.abc import Iterable
from dataclasses import replace

from ganeti.model.objects import Grant, NodeRow, NodeUuid
from ganeti.model.recovery import NodeState, Token
from ganeti.recovery import grants
from ganeti.recovery.core import RecoveryCore
from ganeti.recovery.facts import Watched
from ganeti.recovery.grants import CopyRecord
from ganeti.recovery.messages import Commit, Instruction, Row
from ganeti.recovery.node import Surroundings


class Rules:
    """What the product decides; the flags are what the simulated daemons do besides."""

    syncs_before_opening = True  # D2
    writes_wait_for_all_copies = True  # D4
    commits_before_writing_alone = True  # D5
    commit_decides = True  # D8
    keeps_split_copies = True  # D9
    waits_for_the_list = True  # D7

    core: type[RecoveryCore] = RecoveryCore
    grant_writer = staticmethod(grants.grant_writer)
    drop_peer = staticmethod(grants.drop_peer)
    join_current = staticmethod(grants.join_current)
    opened = staticmethod(grants.opened)
    judge_return = staticmethod(grants.judge_return)
    barred = staticmethod(grants.barred)
    closed = staticmethod(grants.closed)
    release = staticmethod(grants.release)

    @staticmethod
    def counted(token: Token, now: float) -> Token:
        """From when a lease is counted."""
        del now
        return token


class OpensWithoutTheRecord(Rules):
    """D2 left out: a copy is opened under a late grant, whatever its own record says."""

    @staticmethod
    def opened(record: CopyRecord | None, grant: Grant, node: NodeUuid) -> CopyRecord:
        del record
        return grants.opened(None, grant, node)


class OpensBeforeTheSync(Rules):
    """D2 left out: a guest writes before the record of its grant is synced."""

    syncs_before_opening = False


class CountsNoAttempts(RecoveryCore):
    """D13 left out: a new master does not know what was tried before."""

    def __init__(
        self, epoch: int, elected_at: float, rows: Iterable[Row], watched: Watched
    ) -> None:
        super().__init__(
            epoch, elected_at, [row for row in rows if isinstance(row, NodeRow)], watched
        )


class TriesForEver(Rules):
    core = CountsNoAttempts


class KeepsOldRecords(Rules):
    """D9 left out: a node returns without knowing what was granted while it was away."""

    @staticmethod
    def barred(record: CopyRecord | None, grant: Grant) -> CopyRecord:
        return record or CopyRecord(grant.generation, grant.current)


class WritesWithOneCopy(Rules):
    """D4 left out: a write is complete although the peer does not have it."""

    writes_wait_for_all_copies = False


class WritesBeforeTheCommit(Rules):
    """D5 left out: the writer continues alone, and asks the master afterwards."""

    commits_before_writing_alone = False


class CountsFromArrival(Rules):
    """D6, D7 left out: the lease is counted from when the token came back."""

    @staticmethod
    def counted(token: Token, now: float) -> Token:
        return replace(token, sent_at=now)


class AsksNoNode(Rules):
    """D7 left out: a guest counts as under the lease before its node knows that."""

    waits_for_the_list = False


class RenewsWithoutMajority(RecoveryCore):
    """D7 left out: a master that lost its majority keeps its nodes alive."""

    def _around(self, now: float) -> Surroundings:
        return super()._around(now)._replace(has_majority=True)


class NeedsNoMajority(Rules):
    core = RenewsWithoutMajority


class FencesWhenCutOff(RecoveryCore):
    """D11 left out."""

    def _around(self, now: float) -> Surroundings:
        return super()._around(now)._replace(most_answer=True)


class FencesAnyway(Rules):
    core = FencesWhenCutOff


class TrustsOlderFencing(RecoveryCore):
    """D12 left out: what an older master began counts as done."""

    def __init__(
        self, epoch: int, elected_at: float, rows: Iterable[Row], watched: Watched
    ) -> None:
        rows = tuple(rows)
        self._trusted = [
            replace(row, state=NodeState.FENCED, epoch=epoch)
            for row in rows
            if isinstance(row, NodeRow) and row.state is NodeState.FENCING
        ]
        super().__init__(epoch, elected_at, (*rows, *self._trusted), watched)

    def begin(self, now: float, wall: float) -> list[Instruction]:
        return [*super().begin(now, wall), *(Commit(row) for row in self._trusted)]


class ReplaysFencing(Rules):
    core = TrustsOlderFencing


class IgnoresTheCommit(Rules):
    """D8 left out: the target opens the disk although the commit failed."""

    commit_decides = False


class TrustsTheGeneration(Rules):
    """D9 left out: a copy of the present generation counts as current."""

    @staticmethod
    def judge_return(grant: Grant, node: NodeUuid, record: CopyRecord | None) -> grants.Returned:
        if record is None or record.generation < grant.generation:
            return grants.Returned.STALE
        return grants.Returned.CURRENT

    @staticmethod
    def grant_writer(
        grant: Grant, node: NodeUuid, epoch: int, *, is_fenced: bool, through_peer: bool = False
    ) -> Grant:
        del through_peer
        trusted = replace(grant, current=grant.current | {node})
        return grants.grant_writer(trusted, node, epoch, is_fenced=is_fenced)


LEFT_OUT: dict[str, type[Rules]] = {
    "D2 the copy's own record": OpensWithoutTheRecord,
    "D2 the sync before the opening": OpensBeforeTheSync,
    "D4 all current copies": WritesWithOneCopy,
    "D5 the commit before writing alone": WritesBeforeTheCommit,
    "D7 a lease from the sending": CountsFromArrival,
    "D7 a list that the node has": AsksNoNode,
    "D7 a master with a majority": NeedsNoMajority,
    "D8 the commit decides": IgnoresTheCommit,
    "D9 more than the generation": TrustsTheGeneration,
    "D9 records of a node that returns": KeepsOldRecords,
    "D11 most nodes answer": FencesAnyway,
    "D12 fencing of its own epoch": ReplaysFencing,
    "D13 attempts of older masters": TriesForEver,
}
