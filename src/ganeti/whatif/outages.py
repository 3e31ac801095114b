"""When instances were down in a simulation, and the reason of each second."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from ganeti.model.recovery import NodeState
from ganeti.whatif.history import (
    GuestChange,
    GuestState,
    History,
    JobRecord,
    NodeChange,
    OpRecord,
)

_DIGITS = 3


class Reason(StrEnum):
    """Why an instance was down; in the order in which a recovery meets them."""

    LEASE = "the lease of its node was over"
    """Its node ended it, because no master renewed the lease; it waits until it is started again."""
    DETECTION = "detection"
    """Its node is lost, and the master does not know it yet."""
    FENCING = "fencing"
    """Its node is being kept from writing."""
    TURN = "waiting for its turn"
    """Its node is fenced; other instances are recovered first."""
    RETRY = "waiting for another attempt"
    """An attempt has failed, for example because no node had room."""
    QUEUE = "job queue"
    LOCKS = "locks"
    """Another job has what its job needs."""
    WORK = "work of its job"
    """Checks, and the opening of its disks."""
    START = "start"
    """The guest's process is started."""
    BOOT = "boot"
    """The guest's system boots."""
    NODE = "its node is down"
    """It is not protected, and nothing starts it elsewhere."""
    WATCHER = "waiting for the watcher"
    """Its node is up; the watcher or recovery has not started it yet."""


_BACK = ("up",)
_LEASE_OVER = "lease over"
_LOST = ("failed", "cut off")


class Part(msgspec.Struct, frozen=True):
    """A part of an outage with one reason; seconds."""

    reason: Reason
    began: float
    ended: float

    @property
    def length(self) -> float:
        return self.ended - self.began


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """One time during which an instance was down that should run."""

    instance: str
    node: str
    """The node where it ran before."""
    began: float
    ended: float
    """The end of the simulation if it is still down then."""
    is_over: bool
    new_node: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def length(self) -> float:
        return self.ended - self.began

    def by_reason(self) -> dict[str, float]:
        """Return the seconds of each reason, in the order of the reasons."""
        sums: dict[Reason, float] = defaultdict(float)
        for part in self.parts:
            sums[part.reason] += part.length
        return {one.value: round(sums[one], _DIGITS) for one in Reason if one in sums}


def outages(history: History, protected: Collection[str]) -> list[Outage]:
    """Return all outages by their beginning; `protected` names the instances that recovery starts elsewhere."""
    nodes: dict[str, list[NodeChange]] = defaultdict(list)
    for change in history.nodes:
        nodes[change.node].append(change)
    jobs: dict[str, list[JobRecord]] = defaultdict(list)
    for job in history.jobs:
        for subject in {op.subject for op in job.ops}:
            jobs[subject].append(job)
    starts: dict[str, list[GuestChange]] = defaultdict(list)
    for guest in history.guests:
        if guest.state is GuestState.STARTS:
            starts[guest.instance].append(guest)
    found = []
    for outage in _gaps(history):
        own = [
            job
            for job in jobs[outage.instance]
            if job.received < outage.ended and (job.end is None or job.end > outage.began)
        ]
        reasons = [
            *_of_node(outage, nodes[outage.node], is_protected=outage.instance in protected),
            *_of_attempts(outage, jobs[outage.instance]),
            *(one for job in own for one in _of_job(job, outage)),
            *_of_starts(starts[outage.instance], outage),
        ]
        found.append(msgspec.structs.replace(outage, parts=tuple(_parts(outage, reasons))))
    return found


def _gaps(history: History) -> list[Outage]:
    """Return the times without a running guest of instances that ran before."""
    changes: dict[str, list[GuestChange]] = defaultdict(list)
    for change in sorted(history.guests, key=lambda one: one.at):
        changes[change.instance].append(change)
    found = []
    for instance, own in changes.items():
        running: dict[str, float] = {}
        down: tuple[float, str] | None = None
        for change in own:
            if change.state is GuestState.MOVED:
                running = {change.node: change.at}
            elif change.state is GuestState.UP:
                running[change.node] = change.at
                if down is not None and change.at > down[0]:
                    began, node = down
                    found.append(Outage(instance=instance, node=node, began=began, ended=change.at,
                                        is_over=True, new_node=change.node))  # fmt: skip
                down = None
            elif (
                change.state is GuestState.DOWN
                and running.pop(change.node, None) is not None
                and not running
            ):
                down = (change.at, change.node)
        if down is not None and history.ended > down[0]:
            found.append(Outage(instance=instance, node=down[1], began=down[0],
                                ended=history.ended, is_over=False))  # fmt: skip
    return sorted(found, key=lambda one: (one.began, one.instance))


_Span = tuple[Reason, float, float]
"""A reason from one time to another; later spans of a list win."""


def _of_node(
    outage: Outage, changes: Iterable[NodeChange], *, is_protected: bool
) -> Iterator[_Span]:
    """Yield what happened to the node where it ran: loss, detection, fencing, return."""
    lost: float | None = None
    for change in changes:
        if change.at >= outage.ended:
            return
        if change.state in _LOST and lost is None:
            lost = change.at
            yield (Reason.DETECTION if is_protected else Reason.NODE), lost, outage.ended
        elif change.state == _LEASE_OVER and lost is None and change.at >= outage.began:
            yield Reason.LEASE, outage.began, outage.ended
        elif change.state in _BACK and lost is not None:
            lost = None
            yield Reason.WATCHER, change.at, outage.ended
        elif is_protected and lost is not None and change.state in _FENCING:
            yield _FENCING[change.state], change.at, outage.ended


_FENCING = {
    NodeState.FENCING.value: Reason.FENCING,
    NodeState.STUCK.value: Reason.FENCING,
    NodeState.FENCED.value: Reason.TURN,
}


def _of_attempts(outage: Outage, jobs: Iterable[JobRecord]) -> Iterator[_Span]:
    """Yield the time after each failed job of the instance."""
    for job in jobs:
        if job.end is not None and job.status == "error" and job.end >= outage.began:
            yield Reason.RETRY, job.end, outage.ended


def _of_job(job: JobRecord, outage: Outage) -> Iterator[_Span]:
    """Yield the phases of a job."""
    end = outage.ended if job.end is None else job.end
    yield Reason.QUEUE, job.received, end
    for op in job.ops:
        yield from _of_op(op, end)


def _of_starts(starts: Iterable[GuestChange], outage: Outage) -> Iterator[_Span]:
    """Yield the starts of the guest's process, and what follows them."""
    for one in starts:
        began = one.at - one.took
        if outage.began <= began and one.at < outage.ended:
            yield Reason.START, began, one.at
            yield Reason.BOOT, one.at, outage.ended


def _of_op(op: OpRecord, end: float) -> Iterator[_Span]:
    if op.start is not None:
        yield Reason.LOCKS, op.start, op.exec if op.exec is not None else (op.end or end)
    if op.exec is not None:
        yield Reason.WORK, op.exec, end if op.end is None else op.end


def _parts(outage: Outage, spans: Sequence[_Span]) -> Iterator[Part]:
    """Yield parts that cover the outage without a gap; the last span of a moment tells its reason."""
    inside = [
        (reason, max(began, outage.began), min(ended, outage.ended))
        for reason, began, ended in spans
        if began < outage.ended and ended > outage.began and began < ended
    ]
    edges = sorted({outage.began, outage.ended, *(edge for _, *both in inside for edge in both)})
    current: Part | None = None
    for began, ended in pairwise(edges):
        reason = next(
            (one for one, start, end in reversed(inside) if start <= began and end >= ended),
            Reason.WATCHER,
        )
        if current is not None and current.reason is reason:
            current = Part(reason, current.began, ended)
        else:
            if current is not None:
                yield current
            current = Part(reason, began, ended)
    if current is not None:
        yield current
