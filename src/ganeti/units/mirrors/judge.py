"""The state of a mirrored disk, from what its nodes report, and the command that repairs it. Pure.

All clients of these states use this module: `verify`, `disk-status`, `activate-disks`, `verify-disks`,
`replace-disks`, failover, migration and the watcher.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.model.mirror_states import LOST, UNUSABLE, WELL, MirrorState
from ganeti.rpc.procedures.disks import DiskInfo, SyncStatus

OFFLINE = "the node is marked offline"


@dataclass(frozen=True)
class Seen:
    """One part of one disk: its node and that node's report; `info` is None without a report."""

    disk: int
    node: str
    is_primary: bool
    info: DiskInfo | None
    why: str = ""

    @property
    def copy(self) -> SyncStatus | None:
        """The copy on this node, open or not."""
        return None if self.info is None else self.info.sync or self.info.at_rest

    @property
    def is_open(self) -> bool:
        return self.info is not None and self.info.sync is not None

    @property
    def is_connected(self) -> bool:
        return self.info is not None and self.info.sync is not None and self.info.sync.connected

    @property
    def is_writing(self) -> bool:
        return self.info is not None and self.info.sync is not None and self.info.sync.writing


@dataclass(frozen=True)
class Problem:
    """A fault of a disk, and the command that repairs it; '' if no command can."""

    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.text}; run: {self.command}" if self.command else self.text


@dataclass(frozen=True)
class Verdict:
    """One disk: its parts, the primary node's first, and the state of each."""

    parts: tuple[Seen, ...]
    states: tuple[MirrorState, ...]

    @property
    def disk(self) -> int:
        return self.parts[0].disk

    @property
    def state(self) -> MirrorState:
        """The state of its worst part."""
        return max(self.states, key=lambda state: state.rank)

    @property
    def primary(self) -> Seen:
        return self.parts[0]

    @property
    def is_whole(self) -> bool:
        """True if every copy is known to have all data."""
        copies = [part.copy for part in self.parts]
        if any(copy is None or not (copy.up_to_date and copy.consistent) for copy in copies):
            return False
        if all(part.is_connected for part in self.parts):
            return self.state is MirrorState.OK
        return len({copy.generations[:1] for copy in copies if copy is not None}) == 1

    def of(self, node: str) -> tuple[Seen, MirrorState]:
        """Return the part on a node, by its name."""
        at = [part.node for part in self.parts].index(node)
        return self.parts[at], self.states[at]

    def others(self, node: str) -> list[Seen]:
        """Return the parts on other nodes."""
        return [part for part in self.parts if part.node != node]


def have_parted(one: SyncStatus, other: SyncStatus) -> bool:
    """Return whether both copies have data that the other lacks; an incomplete copy has none of its own."""
    ours, theirs = one.generations, other.generations
    if not ours or not theirs or one.connected or other.connected:
        return False
    if not (one.consistent and other.consistent):
        return False
    return ours[0] not in theirs and theirs[0] not in ours


def lacks_writes(copy: SyncStatus, other: SyncStatus) -> bool:
    """Return whether a copy without a connection has only an ancestor of the other's data."""
    if copy.connected or other.connected or not other.consistent:
        return False
    ours, theirs = copy.generations[:1], other.generations
    return bool(ours) and bool(theirs) and ours[0] != theirs[0] and ours[0] in theirs[1:]


def is_behind(copy: SyncStatus, newest: SyncStatus) -> bool:
    """Return whether a copy lacks writes without a record of that."""
    return copy.up_to_date and newest.up_to_date and lacks_writes(copy, newest)


def judge(parts: Sequence[Seen], *, mirrored: bool) -> Verdict:
    """Return the verdict on one disk."""
    copies = [part.copy for part in parts]
    states = []
    for at, part in enumerate(parts):
        others = [copy for copy in (*copies[:at], *copies[at + 1 :]) if copy is not None]
        states.append(_judged(part, others if mirrored else None))
    return Verdict(tuple(parts), tuple(states))


def _judged(part: Seen, others: Sequence[SyncStatus] | None) -> MirrorState:
    """Return the state of one part; `others` is None for a disk with one part."""
    info, copy = part.info, part.copy
    if info is None:
        return MirrorState.UNKNOWN
    if not info.exists:
        return MirrorState.BROKEN if info.problem else MirrorState.MISSING
    if info.problem or (copy is not None and not copy.attached):
        return MirrorState.BROKEN
    if others is None:
        return MirrorState.OK
    if copy is None:
        return MirrorState.CLOSED
    if any(have_parted(copy, other) for other in others):
        return MirrorState.SPLIT_BRAIN
    return _data_state(copy, others) or _connection_state(part)


def _data_state(copy: SyncStatus, others: Sequence[SyncStatus]) -> MirrorState | None:
    """Return the state of a copy by its data; None if it has all known data."""
    if copy.percent is not None:
        return MirrorState.SYNCING
    if not copy.consistent:
        is_new = all(
            not one.consistent and one.generations[:1] == copy.generations[:1] for one in others
        )
        return (
            MirrorState.CLOSED
            if is_new and others and not copy.connected
            else MirrorState.INCOMPLETE
        )
    if not copy.up_to_date or any(lacks_writes(copy, other) for other in others):
        return MirrorState.STALE
    return None


def _connection_state(part: Seen) -> MirrorState:
    if not part.is_open:
        return MirrorState.CLOSED
    if part.is_connected:
        return MirrorState.OK
    dropped = part.copy is not None and part.copy.dropped
    return MirrorState.DROPPED if dropped else MirrorState.CONNECTING


# --- what to do ---


def activation(instance: str) -> str:
    """Return the command that opens and connects the disks of an instance."""
    return f"gnt-instance activate-disks {instance}"


def problem(verdict: Verdict, instance: str, *, is_up: bool) -> Problem | None:
    """Return the fault of a mirrored disk of an instance, with the repair command; None if there is none.

    `is_up` says whether the disk should be open.
    """
    state = verdict.state
    if state in WELL and not (is_up and MirrorState.CLOSED in verdict.states):
        return None
    text = f"disk/{verdict.disk} is {state}: {_advice(verdict)}"
    if state is MirrorState.SPLIT_BRAIN:
        return Problem(text, f"gnt-instance repair-disks --keep=NODE {instance}")
    if any(one in LOST for one in verdict.states):
        return Problem(text, _making_again(verdict, instance))
    silent = [part for part in verdict.parts if part.info is None]
    if silent:
        return Problem(text, _without(verdict, instance, silent[0]))
    if any(_can_be_activated(part) for part in verdict.parts):
        return Problem(text, activation(instance))
    if verdict.primary.is_open:
        ends = " and ".join(part.node for part in verdict.parts)
        return Problem(
            f"{text}; {ends} do not reach each other over the replication network (their secondary addresses);"
            " the copies connect and synchronise when they do"
        )
    return Problem(text, activation(instance))


def _making_again(verdict: Verdict, instance: str) -> str:
    """Return the command that recreates lost parts: from the other copy, or empty; damage needs an administrator."""
    if any(state not in LOST for state in verdict.states):
        return f"gnt-instance replace-disks -a {instance}"
    is_gone = all(state is MirrorState.MISSING for state in verdict.states)
    return f"gnt-instance recreate-disks {instance}" if is_gone else ""


def _advice(verdict: Verdict) -> str:
    """Describe the faulty parts."""
    found = []
    for part, state in zip(verdict.parts, verdict.states, strict=True):
        if state is MirrorState.OK or (state is MirrorState.CLOSED and verdict.state is not state):
            continue
        why = (part.info.problem if part.info else part.why) or _missed(part)
        found.append(f"the copy on {part.node} {state.meaning}" + (f" ({why})" if why else ""))
    return ", ".join(found)


def _missed(part: Seen) -> str:
    """Return how much the other copy lacks."""
    missed = part.copy.missed_kib if part.copy is not None and not part.copy.connected else 0
    return f"the other copy lacks at most {-(-missed // 1024)} MiB of it" if missed else ""


def _can_be_activated(part: Seen) -> bool:
    copy = part.copy
    return not part.is_open or (copy is not None and copy.dropped)


def _without(verdict: Verdict, instance: str, silent: Seen) -> str:
    """Return the command to use while a node does not answer; '' if the other copy can be used."""
    states = [
        state
        for part, state in zip(verdict.parts, verdict.states, strict=True)
        if part is not silent
    ]
    if silent.why != OFFLINE or MirrorState.STALE not in states:
        return ""
    if silent.is_primary:
        return f"gnt-instance failover --ignore-consistency {instance}"
    (other,) = verdict.others(silent.node)
    return f"gnt-instance repair-disks --keep={other.node} {instance}"


def why_not_used(verdict: Verdict, node: str) -> str:
    """Return why no guest may start from the copy on a node instead of the present one; '' if it may (G13, D6)."""
    part, state = verdict.of(node)
    if state in (*UNUSABLE, MirrorState.UNKNOWN, MirrorState.STALE, MirrorState.SPLIT_BRAIN):
        return f"the copy on {node} {state.meaning}" + _because(part)
    if _is_filled(part, state):
        return f"the copy on {node} is not up to date: it {state.meaning}"
    for other in verdict.others(node):
        if (
            other.is_open
            and not other.is_connected
            and other.copy is not None
            and other.copy.attached
        ):
            more = _missed(other) or "it misses all writes from now on"
            return f"the copy on {node} is not connected to that on {other.node}; {more}"
    return ""


def why_no_source(verdict: Verdict, node: str) -> str:
    """Return why a new copy on the other node must not be filled from that on `node`; '' if it may.

    The primary node's copy may have no connection to the copy that is replaced.
    """
    part, state = verdict.of(node)
    if not part.is_primary:
        return why_not_used(verdict, node)
    if state in (*UNUSABLE, MirrorState.UNKNOWN, MirrorState.STALE, MirrorState.SPLIT_BRAIN):
        return f"the copy on {node} {state.meaning}" + _because(part)
    if _is_filled(part, state):
        return f"the copy on {node} is not up to date: it {state.meaning}"
    return ""


def _is_filled(part: Seen, state: MirrorState) -> bool:
    """Return whether a synchronisation writes to this copy."""
    return state is MirrorState.SYNCING and part.copy is not None and not part.copy.up_to_date


def _because(part: Seen) -> str:
    why = part.info.problem if part.info else part.why
    return f" ({why})" if why else ""


def why_not_alone(verdict: Verdict) -> str:
    """Return why the primary's copy may not be opened alone; '' if it certainly has all data (D5, D6).

    It has all data if the other copy has nothing more, or was already marked as out of date.
    """
    part, state = verdict.primary, verdict.states[0]
    if part.copy is None or state in (*UNUSABLE, MirrorState.UNKNOWN):
        return f"the copy on {part.node} {state.meaning}" + _because(part)
    if not part.copy.up_to_date:
        return f"the copy on {part.node} {MirrorState.STALE.meaning}"
    for other in verdict.others(part.node):
        if other.copy is None:
            return (
                f"the copy on {other.node} cannot be compared with that on {part.node}"
                + _because(other)
            )
        if other.copy.up_to_date and not other.is_open:
            return f"the copy on {other.node} is not open, so it cannot be marked as out of date"
        if other.copy.up_to_date and state in (MirrorState.STALE, MirrorState.SPLIT_BRAIN):
            return f"the copy on {part.node} {state.meaning}"
        if lacks_writes(part.copy, other.copy):
            return f"the copy on {part.node} {MirrorState.STALE.meaning}"
    return ""


def row(part: Seen, state: MirrorState) -> dict[str, Any]:
    """Return a part in the form of results (S95, S97)."""
    info = part.info or DiskInfo(exists=False, problem=part.why)
    sync = info.sync or SyncStatus(up_to_date=False, connected=False)
    return {
        "disk": part.disk,
        "node": part.node,
        "primary": part.is_primary,
        "status": str(state),
        "path": info.path,
        "size": info.size,
        "percent": sync.percent,
        "seconds_left": sync.seconds_left,
        "rate": sync.rate,
        "state": sync.state,
        "problem": info.problem,
    }
