"""Repairs of instances whose nodes are offline or drained: what is needed, what is allowed, and how far it is.

All that is remembered is in tags of the instance, `Mark`s; what is allowed is said by tags of instance, group and
cluster. Nothing here asks anybody: node states, job states and the time are given.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from ganeti.base.errors import InputError
from ganeti.model.disk_templates import Mirror
from ganeti.placement.description import Instance, facts

PREFIX = "ganeti:watcher:autorepair:"
_PENDING, _RESULT, _SUSPEND = f"{PREFIX}pending:", f"{PREFIX}result:", f"{PREFIX}suspend"
OFFLINE, DRAINED = "offline", "drained"
STOPPED = "ADMIN_"
"""How the status of an instance begins that is not to run."""
ALLOCATOR = "hail"


class Level(IntEnum):
    """How much a repair may do; each allows what is before it."""

    FIX_STORAGE = 0
    MIGRATE = 1
    FAILOVER = 2
    REINSTALL = 3

    @property
    def word(self) -> str:
        """As tags have it."""
        return self.name.lower().replace("_", "-")


_LEVELS = {level.word: level for level in Level}


class Result(StrEnum):
    """How a repair ended; `enoperm` did not begin because too little is allowed."""

    SUCCESS = "success"
    FAILURE = "failure"
    ENOPERM = "enoperm"


class Mark(NamedTuple):
    """One repair as a tag remembers it; without a result it is pending. `time` is seconds since the epoch."""

    level: Level
    id: str
    time: int
    jobs: tuple[int, ...] = ()
    result: Result | None = None

    @property
    def tag(self) -> str:
        head = _PENDING if self.result is None else _RESULT
        how = [] if self.result is None else [str(self.result)]
        jobs = "+".join(map(str, self.jobs))
        return head + ":".join([self.level.word, self.id, str(self.time), *how, jobs])

    @property
    def is_pending(self) -> bool:
        return self.result is None


class State(StrEnum):
    """Where an instance is; the words are what `harep` counts."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


class Standing(NamedTuple):
    """What an instance's marks mean: the one that counts, and the tags that it makes obsolete."""

    state: State
    mark: Mark | None = None
    obsolete: tuple[str, ...] = ()


class Suspended(NamedTuple):
    """Nothing may be done until then; for ever if None."""

    until: int | None


class Repair(NamedTuple):
    """What has to be done, as the opcodes of one job."""

    level: Level
    opcodes: tuple[dict[str, Any], ...]


def parse_mark(tag: str) -> Mark | None:
    """The repair that a tag tells of; None if it tells of none, or in another form."""
    for head, has_result in ((_PENDING, False), (_RESULT, True)):
        if not tag.startswith(head):
            continue
        match tag.removeprefix(head).split(":"), has_result:
            case [level, uuid, time, jobs], False:
                return _mark(level, uuid, time, jobs, None)
            case [level, uuid, time, result, jobs], True if result in set(Result):
                return _mark(level, uuid, time, jobs, Result(result))
    return None


def _mark(level: str, uuid: str, time: str, jobs: str, result: Result | None) -> Mark | None:
    ids = [one for one in jobs.split("+") if one]
    if level not in _LEVELS or not all(one.isdecimal() and one.isascii() for one in [time, *ids]):
        return None
    return Mark(_LEVELS[level], uuid, int(time), tuple(map(int, ids)), result)


def standing(tags: Iterable[str]) -> Standing:
    """What the tags of an instance say; InputError if two repairs are pending.

    Of the marks of one repair that with a result counts. A failure counts until somebody removes it, else what
    is pending, else the latest result.
    """
    by_id: dict[str, list[Mark]] = {}
    for mark in filter(None, map(parse_mark, tags)):
        by_id.setdefault(mark.id, []).append(mark)
    latest = sorted(
        (max(marks, key=lambda one: (not one.is_pending, one.time)) for marks in by_id.values()),
        key=lambda one: one.time,
    )
    every = [mark for marks in by_id.values() for mark in marks]
    if failures := [one for one in latest if one.result is Result.FAILURE]:
        return Standing(State.FAILED, failures[0])
    pending = [one for one in latest if one.is_pending]
    if len(pending) > 1:
        tags_of = " and ".join(one.tag for one in pending)
        raise InputError(f"two repairs are pending, {tags_of}: remove the tag of one", "tags")
    if not latest:
        return Standing(State.HEALTHY)
    current = pending[0] if pending else latest[-1]
    obsolete = tuple(one.tag for one in every if one != current)
    return Standing(State.PENDING if pending else State.HEALTHY, current, obsolete)


def permission(objects: Sequence[Iterable[str]], now: float) -> Level | Suspended | None:
    """What is allowed by the tags of instance, group and cluster, in this order; None if nothing is said."""
    for tags in objects:
        mine = [tag for tag in tags if tag.startswith(PREFIX)]
        ends = [end for end in map(_suspension, mine) if end is not None and end > now]
        if ends:
            return Suspended(None if max(ends) == float("inf") else int(max(ends)))
        levels = [_LEVELS[word] for tag in mine if (word := tag.removeprefix(PREFIX)) in _LEVELS]
        if levels:
            return min(levels)
    return None


def expired(tags: Iterable[str], now: float) -> list[str]:
    """The suspensions that are over."""
    return [tag for tag in tags if (end := _suspension(tag)) is not None and end <= now]


def _suspension(tag: str) -> float | None:
    if tag == _SUSPEND:
        return float("inf")
    head, _, time = tag.rpartition(":")
    return float(time) if head == _SUSPEND and time.isdecimal() and time.isascii() else None


def needed(instance: Instance, why: Mapping[str, str]) -> Repair | None:
    """What would bring the instance onto good nodes; `why` is `offline` or `drained` for those that are not good.

    One step: what comes after a failover is found when that is done. Disks that are lost with their node are made
    anew, with a new installation; disks of a node that is only drained are left alone.
    """
    primary, secondary = why.get(instance.primary), why.get(instance.secondary)
    mirror = facts(instance.template).mirror
    if mirror is Mirror.NONE:
        return _reinstall(instance) if primary == OFFLINE else None
    if mirror is Mirror.INTERNAL:
        if primary == OFFLINE:
            return _reinstall(instance) if secondary == OFFLINE else _failover(instance)
        if secondary is not None:
            return _replace_secondary(instance)
    elif primary == OFFLINE:
        return _failover(instance, iallocator=ALLOCATOR)
    if primary == DRAINED:
        return _migrate(instance, {} if mirror is Mirror.INTERNAL else {"iallocator": ALLOCATOR})
    return None


def _opcode(name: str, instance: Instance, **fields: Any) -> dict[str, Any]:
    return {"OP_ID": f"OP_INSTANCE_{name}", "instance_name": instance.name, **fields}


def _failover(instance: Instance, **fields: Any) -> Repair:
    # A copy that is not whole is not used: the job fails then, and somebody has to judge.
    return Repair(Level.FAILOVER, (_opcode("FAILOVER", instance, **fields),))


def _migrate(instance: Instance, fields: Mapping[str, Any]) -> Repair:
    if instance.status == "running":
        return Repair(Level.MIGRATE, (_opcode("MIGRATE", instance, **fields),))
    return Repair(Level.MIGRATE, (_opcode("FAILOVER", instance, **fields),))


def _replace_secondary(instance: Instance) -> Repair:
    op = _opcode(
        "REPLACE_DISKS", instance, mode="replace_new_secondary", disks=[], iallocator=ALLOCATOR
    )
    return Repair(Level.FIX_STORAGE, (op,))


def _reinstall(instance: Instance) -> Repair:
    ops = [
        _opcode("RECREATE_DISKS", instance, iallocator=ALLOCATOR),
        _opcode("REINSTALL", instance),
    ]
    if not instance.status.startswith(STOPPED):
        # Disks are made only for instances that are not to run.
        ops.insert(0, _opcode("SHUTDOWN", instance, ignore_offline_nodes=True))
        ops.append(_opcode("STARTUP", instance))
    return Repair(Level.REINSTALL, tuple(ops))


RUNNING_JOBS = ("queued", "waiting", "canceling", "running")


def judged(
    mark: Mark, statuses: Sequence[str | None], now: float, *, is_broken: bool
) -> Mark | None:
    """The mark of a pending repair whose jobs have ended; None while one has not.

    A job that the master no longer knows counts as done if nothing is broken any more.
    """
    if any(status in RUNNING_JOBS for status in statuses):
        return None
    good = all(status == "success" or (status is None and not is_broken) for status in statuses)
    return mark._replace(time=int(now), result=Result.SUCCESS if good else Result.FAILURE)
