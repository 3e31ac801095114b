"""The report of a simulation: plain data, the same byte for byte for the same source, scenario, seed and version."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ganeti import __version__
from ganeti.config.fill import recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, NodeUuid
from ganeti.model.recovery import NodeState, Recovery
from ganeti.model.stored import Stored
from ganeti.simulation.durations import Durations
from ganeti.whatif.capacity import Measured, against, described, measured
from ganeti.whatif.durations import as_figures, ranges
from ganeti.whatif.history import GuestState, History, JobRecord, NodeChange, OpRecord
from ganeti.whatif.outages import Outage, Reason, outages
from ganeti.whatif.source import NodeSize, Source

FORMAT = 1
_DIGITS = 3
MOST_ENTRIES = 500
"""Of the timeline, the failed jobs and so on; the report tells how many it leaves out."""
MOST_EXPLAINED = 50
RECOVERY_KINDS = ("INSTANCE_FAILOVER", "INSTANCE_STARTUP", "INSTANCE_MIGRATE", "INSTANCE_RECOVER")


class Entry(msgspec.Struct, frozen=True):
    """One line of the timeline; `kind` is `scenario`, `node`, `instance` or `job`."""

    at: float
    kind: str
    text: str


class NodeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A time during which a node was not in normal service."""

    node: str
    state: str
    began: float
    ended: float


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is down at the end though it should run."""

    instance: str
    node: str
    since: float
    why: str
    nodes: tuple[tuple[str, str], ...]
    """The reason against each node; '' where the instance would fit."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """The first operation for which the cluster had no room."""

    at: float
    what: str
    why: str


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that ran again."""

    at: float
    instance: str
    node: str
    down_s: float


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of a figure."""

    min: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    max: float = 0.0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind; seconds."""

    kind: str
    count: int
    failed: int
    queued: Spread
    locks: Spread
    work: Spread


class Contended(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waited long for its locks."""

    job: int
    what: str
    waited: float
    behind: tuple[int, ...]
    """Jobs that ran meanwhile."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The first of the jobs for the same purpose that ended with the same error."""

    at: float
    job: int
    what: str
    error: str
    times: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation with one seed."""

    seed: int
    ended: float
    figures: dict[str, float]
    """The figures whose distribution is shown over several seeds."""
    first_misfit: Misfit | None
    before: Measured
    after: Measured
    reasons: dict[str, float]
    """The seconds of all outages, by reason."""
    node_states: tuple[NodeSpan, ...]
    outages: tuple[Outage, ...]
    still_down: tuple[Down, ...]
    order: tuple[Recovered, ...]
    work: tuple[Work, ...]
    contention: tuple[Contended, ...]
    failed: tuple[Failed, ...]
    timeline: tuple[Entry, ...]
    left_out: dict[str, int] = {}
    """The number of entries that the lists above omit."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report; `run` is the only simulation, or the worst of several."""

    format: int = FORMAT
    version: str = __version__
    source: str
    cluster: str
    scenario: str
    steps: tuple[str, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...]
    durations: dict[str, float]
    """The assumed durations, in seconds or MiB/s."""
    varying: dict[str, tuple[float, float]] = {}
    """The least and the greatest value of those that vary as they were measured; `durations` has the median."""
    distribution: dict[str, Spread]
    """Over the seeds, if there are several."""
    run: Run


def protected_of(objects: Iterable[Stored]) -> frozenset[str]:
    """Return the names of instances that automatic recovery starts on another node."""
    found = list(objects)
    cluster = next(one for one in found if isinstance(one, Cluster))
    snapshot = Snapshot.of(0, cluster, others=[one for one in found if one is not cluster])
    return frozenset(
        one.name
        for one in snapshot.instances.values()
        if recovery_of(snapshot, one) is Recovery.FAILOVER
    )


def run_of(history: History, sizes: Mapping[NodeUuid, NodeSize], seed: int) -> Run:
    """Return the report of one simulation."""
    down = outages(history, protected_of(history.after) | protected_of(history.before))
    after = described(history.after, sizes, history.down)
    still = list(_still_down(history, down))
    jobs = sorted(history.jobs, key=lambda one: one.number)
    failed = _failed(jobs)
    order = list(_order(down))
    timeline = sorted(_timeline(history), key=lambda one: one.at)
    left = {"outages": len(down) - MOST_ENTRIES, "still_down": len(still) - MOST_EXPLAINED,
            "order": len(order) - MOST_ENTRIES, "failed": len(failed) - MOST_ENTRIES,
            "timeline": len(timeline) - MOST_ENTRIES}  # fmt: skip
    reasons: dict[str, float] = defaultdict(float)
    for outage in down:
        for reason, length in outage.by_reason().items():
            reasons[reason] += length
    return Run(
        seed=seed,
        ended=_rounded(history.ended),
        figures=_figures(down, len(still), jobs) | {"without a master s": _masterless_s(history)},
        first_misfit=_first_misfit(jobs),
        before=measured(described(history.before, sizes)),
        after=measured(after),
        reasons={one.value: _rounded(reasons[one]) for one in Reason if one in reasons},
        node_states=tuple(_node_states(history))[:MOST_ENTRIES],
        outages=tuple(_short(one) for one in down[:MOST_ENTRIES]),
        still_down=tuple(
            msgspec.structs.replace(one, nodes=tuple(against(after, one.instance)))
            for one in still[:MOST_EXPLAINED]
        ),
        order=tuple(order[:MOST_ENTRIES]),
        work=tuple(_work(jobs)),
        contention=tuple(_contention(jobs)),
        failed=tuple(failed[:MOST_ENTRIES]),
        timeline=tuple(timeline[:MOST_ENTRIES]),
        left_out={name: number for name, number in left.items() if number > 0},
    )


def report_of(
    source: Source,
    scenario: str,
    steps: Sequence[str],
    durations: Durations,
    runs: Sequence[Run],
) -> Report:
    """Return the report of one simulation, or of several with different seeds."""
    worst = max(
        runs,
        key=lambda one: (one.figures["still down"], one.figures["total downtime s"], -one.seed),
    )
    names = runs[0].figures if len(runs) > 1 else {}
    return Report(
        source=source.kind,
        cluster=source.name,
        scenario=scenario,
        steps=tuple(steps),
        seeds=tuple(one.seed for one in runs),
        notes=source.notes,
        durations=as_figures(durations),
        varying=ranges(durations),
        distribution={name: spread([one.figures[name] for one in runs]) for name in names},
        run=worst,
    )


def json_report(report: Report) -> str:
    """Return the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


def spread(values: Iterable[float]) -> Spread:
    """Return the distribution of values: the greatest value of the lowest 50 and 90 %."""
    ordered = sorted(values)
    if not ordered:
        return Spread()

    def at(share: int) -> float:
        return _rounded(ordered[max(0, -(-len(ordered) * share // 100) - 1)])

    return Spread(min=at(0), p50=at(50), p90=at(90), max=at(100))


def _rounded(value: float) -> float:
    return round(value, _DIGITS) + 0.0


def _short(outage: Outage) -> Outage:
    """Return an outage with rounded times."""
    return msgspec.structs.replace(
        outage,
        began=_rounded(outage.began),
        ended=_rounded(outage.ended),
        parts=tuple(
            msgspec.structs.replace(part, began=_rounded(part.began), ended=_rounded(part.ended))
            for part in outage.parts
        ),
    )


def _figures(down: Sequence[Outage], still: int, jobs: Sequence[JobRecord]) -> dict[str, float]:
    lengths = [one.length for one in down]
    return {
        "instances down": len({one.instance for one in down}),
        "outages": len(down),
        "total downtime s": _rounded(sum(lengths)),
        "longest outage s": _rounded(max(lengths, default=0.0)),
        "still down": still,
        "jobs": len(jobs),
        "failed jobs": sum(one.status == "error" for one in jobs),
    }


_NORMAL = ("up", "lease over", NodeState.HEALTHY.value, "online", "undrained")


def _node_states(history: History) -> Iterator[NodeSpan]:
    """Yield the states of each node, one after the other, without those of normal service."""
    changes: dict[str, list[NodeChange]] = defaultdict(list)
    for change in sorted(history.nodes, key=lambda one: one.at):
        changes[change.node].append(change)
    for node, own in sorted(changes.items()):
        ends = [*(one.at for one in own[1:]), history.ended]
        for change, ended in zip(own, ends, strict=True):
            if change.state not in _NORMAL and ended > change.at:
                yield NodeSpan(node=node, state=change.state, began=_rounded(change.at),
                               ended=_rounded(ended))  # fmt: skip


def _masterless_s(history: History) -> float:
    """Return how long the cluster had no master."""
    ends = [*(at for at, _name in history.masters[1:]), history.ended]
    gaps = zip(history.masters, ends, strict=False)
    return _rounded(sum(ended - at for (at, name), ended in gaps if not name))


def _still_down(history: History, down: Iterable[Outage]) -> Iterator[Down]:
    wanted = {
        one.name
        for one in history.after
        if isinstance(one, Instance) and one.admin_state is AdminState.UP
    }
    errors = {
        op.subject: op.error for job in history.jobs for op in job.ops if op.error and op.subject
    }
    for one in down:
        if not one.is_over and one.instance in wanted:
            why = errors.get(one.instance) or (one.parts[-1].reason.value if one.parts else "")
            yield Down(
                instance=one.instance, node=one.node, since=_rounded(one.began), why=why, nodes=()
            )


def _order(down: Iterable[Outage]) -> Iterator[Recovered]:
    over = sorted((one for one in down if one.is_over), key=lambda one: (one.ended, one.instance))
    for one in over:
        yield Recovered(at=_rounded(one.ended), instance=one.instance, node=one.new_node,
                        down_s=_rounded(one.length))  # fmt: skip


def _failed(jobs: Iterable[JobRecord]) -> list[Failed]:
    found: dict[tuple[str, str], Failed] = {}
    for job in jobs:
        wrong = next((op for op in job.ops if op.status == "error"), None)
        if job.status == "error" and wrong is not None:
            at = job.received if job.end is None else job.end
            key = (wrong.summary, wrong.error)
            first = found.get(key) or Failed(at=_rounded(at), job=job.number, what=wrong.summary,
                                             error=wrong.error, times=0)  # fmt: skip
            found[key] = msgspec.structs.replace(first, times=first.times + 1)
    return list(found.values())


def _first_misfit(jobs: Iterable[JobRecord]) -> Misfit | None:
    """Return the first operation that failed for lack of resources."""
    found = [
        (job.received if job.end is None else job.end, op)
        for job in jobs
        for op in job.ops
        if op.has_no_room
    ]
    if not found:
        return None
    at, op = min(found, key=lambda one: one[0])
    return Misfit(at=_rounded(at), what=op.summary, why=op.error)


def _work(jobs: Iterable[JobRecord]) -> Iterator[Work]:
    kinds: dict[str, list[tuple[JobRecord, OpRecord]]] = defaultdict(list)
    for job in jobs:
        for op in job.ops:
            kinds[op.kind].append((job, op))
    for kind, found in sorted(kinds.items()):
        yield Work(
            kind=kind,
            count=len(found),
            failed=sum(op.status == "error" for _job, op in found),
            queued=spread(
                op.start - job.received
                for job, op in found
                if op.start is not None and op is job.ops[0]
            ),
            locks=spread(
                op.exec - op.start
                for _job, op in found
                if op.exec is not None and op.start is not None
            ),
            work=spread(
                op.end - op.exec for _job, op in found if op.end is not None and op.exec is not None
            ),
        )


_LONG_WAIT_S, _MOST_CONTENDED, _MOST_BEHIND = 1.0, 20, 5


def _contention(jobs: Sequence[JobRecord]) -> Iterator[Contended]:
    """Yield the longest waits for locks."""
    waits = [
        (op.exec - op.start, job, op)
        for job in jobs
        for op in job.ops
        if op.exec is not None and op.start is not None and op.exec - op.start >= _LONG_WAIT_S
    ]
    for waited, job, op in sorted(waits, key=lambda one: (-one[0], one[1].number))[
        :_MOST_CONTENDED
    ]:
        yield Contended(
            job=job.number,
            what=op.summary,
            waited=_rounded(waited),
            behind=tuple(_running_during(jobs, job, op))[:_MOST_BEHIND],
        )


def _running_during(jobs: Iterable[JobRecord], own: JobRecord, op: OpRecord) -> Iterator[int]:
    """Yield the jobs that ended when the opcode got its locks, or ran at that time."""
    for job in jobs:
        if job is own:
            continue
        for one in job.ops:
            if one.exec is None or op.exec is None or op.start is None:
                continue
            ended = op.exec if one.end is None else one.end
            if one.exec < op.exec and op.start < ended <= op.exec + 0.1:
                yield job.number
                break


def _timeline(history: History) -> Iterator[Entry]:
    """Yield changes of nodes, groups of guests, and jobs that failed."""
    for change in history.nodes:
        why = f": {change.why}" if change.why else ""
        yield Entry(_rounded(change.at), "node", f"{change.node} {change.state}{why}")
    for at, name in history.masters:
        if at >= 0:
            text = f"{name} is the master" if name else "the cluster has no master"
            yield Entry(_rounded(at), "node", text)
    ended: Counter[tuple[float, str]] = Counter()
    for guest in history.guests:
        if guest.state is GuestState.UP and guest.at >= 0:
            yield Entry(_rounded(guest.at), "instance", f"{guest.instance} runs on {guest.node}")
        elif guest.state is GuestState.MOVED:
            yield Entry(_rounded(guest.at), "instance", f"{guest.instance} moves to {guest.node}")
        elif guest.state is GuestState.DOWN:
            ended[_rounded(guest.at), guest.node] += 1
    for (at, node), number in ended.items():
        yield Entry(at, "instance", f"{number} guest{'s' if number > 1 else ''} of {node} ended")
    for one in _failed(history.jobs):
        more = f" (and {one.times - 1} more times)" if one.times > 1 else ""
        yield Entry(one.at, "job", f"job {one.job} failed: {one.what}: {one.error}{more}")
