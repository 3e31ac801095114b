"""Repairs of instances whose nodes are offline or drained: the required step, the permission, and the progress.

Tags of the instance are the only memory (`Mark`); tags of instance, group and cluster give the permission. This module
queries nothing: the caller passes node states, job states and the time.
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
"""The beginning of an administrative state that does not run the instance."""
ALLOCATOR = "hail"


class Level(IntEnum):
    """The permitted extent of a repair; each level includes the levels before it."""

    FIX_STORAGE = 0
    MIGRATE = 1
    FAILOVER = 2
    REINSTALL = 3

    @property
    def word(self) -> str:
        """The name of the level in tags."""
        return self.name.lower().replace("_", "-")


_LEVELS = {level.word: level for level in Level}


class Result(StrEnum):
    """The result of a repair; `enoperm` means that it did not begin for lack of permission."""

    SUCCESS = "success"
    FAILURE = "failure"
    ENOPERM = "enoperm"


class Mark(NamedTuple):
    """One repair in a tag; without a result it is pending. `time` is seconds since the epoch."""

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
    """The state of an instance; `harep` counts these words."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


class Standing(NamedTuple):
    """The evaluation of an instance's marks: the mark that counts, and the obsolete tags."""

    state: State
    mark: Mark | None = None
    obsolete: tuple[str, ...] = ()


class Suspended(NamedTuple):
    """The end of a suspension of repairs; None is for ever."""

    until: int | None


class Repair(NamedTuple):
    """The next step, as the opcodes of one job."""

    level: Level
    opcodes: tuple[dict[str, Any], ...]


def parse_mark(tag: str) -> Mark | None:
    """Return the repair in a tag; None if the tag holds none, or has another form."""
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
    """Evaluate the tags of an instance; InputError if two repairs are pending.

    Of the marks of one repair the mark with a result counts. A failure counts until an administrator removes it, then a
    pending repair, then the latest result.
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
    """Return the permission in the tags of instance, group and cluster, in this order; None if no tag gives one."""
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
    """Return the suspensions that have ended."""
    return [tag for tag in tags if (end := _suspension(tag)) is not None and end <= now]


def _suspension(tag: str) -> float | None:
    if tag == _SUSPEND:
        return float("inf")
    head, _, time = tag.rpartition(":")
    return float(time) if head == _SUSPEND and time.isdecimal() and time.isascii() else None


def needed(instance: Instance, why: Mapping[str, str]) -> Repair | None:
    """Return the step that brings the instance closer to good nodes; `why` is `offline` or `drained` for a bad node.

    A failover is one step; the next step is found afterwards. Disks that were lost with their node are recreated with a
    new installation; disks of a node that is only drained are kept.
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
    # An incomplete copy is not used: the job then fails, and an administrator must decide.
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
        # Disks are recreated only for instances that are not to run.
        ops.insert(0, _opcode("SHUTDOWN", instance, ignore_offline_nodes=True))
        ops.append(_opcode("STARTUP", instance))
    return Repair(Level.REINSTALL, tuple(ops))


RUNNING_JOBS = ("queued", "waiting", "canceling", "running")


def judged(
    mark: Mark, statuses: Sequence[str | None], now: float, *, is_broken: bool
) -> Mark | None:
    """Return the mark of a pending repair whose jobs have ended; None while a job is still running.

    A job that the master no longer knows counts as successful if no fault is left.
    """
    if any(status in RUNNING_JOBS for status in statuses):
        return None
    good = all(status == "success" or (status is None and not is_broken) for status in statuses)
    return mark._replace(time=int(now), result=Result.SUCCESS if good else Result.FAILURE)
