"""The right to write a protected disk, and what each copy of the disk records of it (D1-D6, D8, D9).

A grant is a row of the state: the commit decides between two nodes that ask at the same time (D8). A copy has its own
record, which is synced before the disk is opened. A disk that several nodes can open has one copy, `SHARED`.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from ganeti.model.objects import Grant, NodeUuid

SHARED = NodeUuid("shared")
"""The copy of a disk that all its nodes open."""


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """What a copy knows of the grants, synced on its node."""

    generation: int
    current: frozenset[NodeUuid]
    is_written: bool = False
    """It was opened for writing in this generation."""
    is_over: bool = False
    """It was closed in order since: a start call of this generation that arrives later is refused."""


class GrantRefused(Exception):
    """The rule that forbids a grant, and what an administrator can do."""


def grant_writer(
    grant: Grant, node: NodeUuid, epoch: int, *, is_fenced: bool, through_peer: bool = False
) -> Grant:
    """Return the grant under which `node` becomes the writer; GrantRefused (D2, D6).

    `is_fenced`: the present writer certainly writes no more (D7). Its copy misses what comes next.
    `through_peer`: if the copy on `node` is not current, the node writes through a current one, without which its
    driver refuses to open the disk.
    """
    copy = SHARED if SHARED in grant.current else node
    if through_peer and grant.current - {node} and grant.writer in (None, node):
        return Grant(grant.generation + 1, grant.current, node, epoch)
    if copy not in grant.current:
        raise GrantRefused(
            f"the copy on {node} misses writes since generation {grant.generation}: only an administrator may use it"
        )
    other = grant.writer if grant.writer != node else None
    if other is not None and not is_fenced:
        raise GrantRefused(f"{other} may be writing in generation {grant.generation}")
    current = grant.current
    if other is not None and copy is not SHARED:
        current = frozenset({node})
    return Grant(grant.generation + 1, current, node, epoch)


def release(grant: Grant, node: NodeUuid, epoch: int) -> Grant:
    """Return the grant after the writer has closed the disk in order; GrantRefused."""
    if grant.writer != node:
        raise GrantRefused(f"{node} is not the writer, but {grant.writer}")
    return replace(grant, generation=grant.generation + 1, writer=None, epoch=epoch)


def drop_peer(grant: Grant, node: NodeUuid, generation: int, epoch: int) -> Grant:
    """Return the grant with which the writer continues alone; GrantRefused (D5, D8).

    `generation` is that of the copy of the writer, which asks.
    """
    _check_writer(grant, node, generation)
    if node not in grant.current:
        raise GrantRefused(
            f"the copy on {node} misses writes since generation {grant.generation}: its peer cannot be dropped"
        )
    return Grant(generation + 1, frozenset({node}), node, epoch)


def leave_current(grant: Grant, node: NodeUuid, generation: int, epoch: int) -> Grant:
    """Return the grant with which the writer continues without its own copy, whose disk failed; GrantRefused (D1).

    From the failure on only the other current copies get its writes. `generation` as in `drop_peer`.
    """
    _check_writer(grant, node, generation)
    others = grant.current - {node}
    if not others or SHARED in others:
        raise GrantRefused(f"no copy but the one on {node} has every write")
    return Grant(generation + 1, others, node, epoch)


def keep_only(grant: Grant, node: NodeUuid, epoch: int) -> Grant:
    """Return the grant after an administrator has chosen the copy of a node; the others are filled from it (D9)."""
    return replace(grant, generation=grant.generation + 1, current=frozenset({node}), epoch=epoch)


def _check_writer(grant: Grant, node: NodeUuid, generation: int) -> None:
    if grant.writer != node or grant.generation != generation:
        raise GrantRefused(
            f"{node} asks in generation {generation}, but {grant.writer} writes in generation {grant.generation}"
        )


def join_current(grant: Grant, node: NodeUuid, source: CopyRecord, epoch: int) -> Grant:
    """Return the grant with a copy that has been synchronised; GrantRefused (D3).

    `source`: the record of the copy from which it was synchronised, read after that ended.
    """
    if source.generation != grant.generation:
        raise GrantRefused(
            f"the copy on {node} was synchronised in generation {source.generation}, now it is {grant.generation}"
        )
    return replace(
        grant, generation=grant.generation + 1, current=grant.current | {node}, epoch=epoch
    )


def opened(record: CopyRecord | None, grant: Grant, node: NodeUuid) -> CopyRecord:
    """Return the record to sync before `node` opens its copy for writing under a grant; GrantRefused (D2, D8)."""
    if grant.writer != node:
        raise GrantRefused(f"generation {grant.generation} is granted to {grant.writer}")
    if record is not None and record.generation > grant.generation:
        raise GrantRefused(
            f"generation {grant.generation} is over: the copy is of generation {record.generation}"
        )
    if record is not None and record.is_over and record.generation == grant.generation:
        raise GrantRefused(f"generation {grant.generation} is over: the copy was closed")
    return CopyRecord(grant.generation, grant.current, is_written=True)


def closed(record: CopyRecord | None, grant: Grant, node: NodeUuid) -> CopyRecord:
    """Return the record to sync after the guest of a grant has ended on `node`, or has left it.

    The generation does not change: a copy of a later one than the state knows would count as written under a lost
    state, for example after a master that died before it committed the release.
    """
    known = barred(record, grant)
    is_last = grant.writer == node and known.generation == grant.generation
    return replace(known, is_over=known.is_over or is_last)


def barred(record: CopyRecord | None, grant: Grant) -> CopyRecord:
    """Return the record to sync on a node that returns, for each of its copies, before it gets a lease (D8, D9).

    Until then the copy does not know what was granted while its node was away. A start that was granted before that,
    and waited in a queue of the master or of the network, would find an older record and a lease.
    """
    if record is not None and record.generation >= grant.generation:
        return record
    return CopyRecord(grant.generation, grant.current)


class Returned(Enum):
    """What a copy is that comes back."""

    CURRENT = auto()
    """It has every acknowledged write."""
    STALE = auto()
    """It misses writes: it is synchronised again from a current copy, and not opened before that."""
    SPLIT = auto()
    """Two copies were written apart from each other: both are kept, an administrator decides."""


def judge_return(grant: Grant, node: NodeUuid, record: CopyRecord | None) -> Returned:
    """Return what the copy of a node is worth (D9).

    The state says which copies are current, because a write is complete only when all of them have it (D4). A copy
    of a later generation than the state knows was written under a state that is lost.
    """
    if record is None:
        return Returned.STALE
    if record.generation > grant.generation:
        return Returned.SPLIT
    if node in grant.current:
        return Returned.CURRENT
    is_rival = record.is_written and record.generation == grant.generation
    return Returned.SPLIT if is_rival else Returned.STALE
