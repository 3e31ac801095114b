"""A scenario in the simulation and on a real cluster: what of it must be the same, and what is not.

Both become a `History` of `ganeti.whatif`, so the report's own code finds the downtimes of both. Several seeds give
the interval of each time, and the order of jobs that all seeds agree on; `differences` compares the real history with
these.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import msgspec

from ganeti.clients.luxi import LuxiClient
from ganeti.model.objects import Instance, Node
from ganeti.whatif.history import GuestChange, GuestState, History, JobRecord, OpRecord
from ganeti.whatif.outages import outages
from ganeti.whatif.sources import running_source
from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

LOOK_S = 0.02
SLACK_S, MOST_SLOWNESS = 1.0, 5.0
"""How far a real time may be outside of the interval: what the master's own work takes on a quiet machine (`Watch.least_slack_s`),
times how slow the machine was meanwhile. Times of a machine that was slower than MOST_SLOWNESS are not compared, so a
model that is wrong by more than the product is always noticed.
"""
AROUND = frozenset(
    {"NODE_POWERCYCLE", "CLUSTER_VERIFY", "CLUSTER_VERIFY_CONFIG", "CLUSTER_VERIFY_GROUP"}
)
"""Jobs of commands around a scenario: the simulation restarts a node by itself, and verifies nothing."""
WAITS = frozenset({"NODE_MAINTENANCE_END", "INSTANCE_ACTIVATE_DISKS"})
"""They work for as long as a node boots, which a scenario gives, or disks take to open: no model has these times."""
ALIVE = ("running", "sent")
"""States of a fake guest that serves; a guest that was sent is on its way for some milliseconds."""


# The real cluster


@dataclass
class Watch(ABC):
    """Sees the guests of a cluster start and end, from `__enter__` to `__exit__`."""

    cluster: LocalCluster
    names: Mapping[str, str]
    """UUID -> name of each instance."""
    least_slack_s: float = SLACK_S
    changes: list[GuestChange] = field(default_factory=list)
    began: float = 0.0
    """Wall time at which the scenario begins."""
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _last_job: int = 0
    _real_s: float = 0.0
    _processor_s: float = 0.0

    def __enter__(self) -> Self:
        with self.cluster.luxi() as client:
            self._last_job = max(_job_ids(client), default=0)
        self.began = time.time()
        self.begin()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def slowness(self) -> float:
        """How many times as long as without other work on this machine everything took: real time by processor time."""
        return max(1.0, self._real_s / self._processor_s if self._processor_s else 1.0)

    @property
    def slack_s(self) -> float | None:
        """By how much intervals are widened; None if times say nothing, because the machine had too little time."""
        slowness = max(self.slowness, min(patience(), MOST_SLOWNESS))
        return self.least_slack_s * slowness if slowness <= MOST_SLOWNESS else None

    def history(self) -> History:
        """Return what has happened until now."""
        with self.cluster.luxi() as client:
            after = running_source(client).objects
            jobs = _job_records(client, self._last_job, self.began)
        now = time.time() - self.began
        return History(ended=now, before=(), after=after, guests=list(self.changes), jobs=jobs)

    def _watch(self) -> None:
        while not self._end.wait(LOOK_S):
            real_s, processor_s = time.perf_counter(), time.thread_time()
            self.look()
            self._real_s += time.perf_counter() - real_s
            self._processor_s += time.thread_time() - processor_s

    def begin(self) -> None:
        """Note where the guests run at first."""
        self.look()

    @abstractmethod
    def look(self) -> None:
        """Note in `changes` what has happened to guests since the last look."""

    def note(self, instance: str, node: str, state: GuestState) -> None:
        """Note what happens to a guest now."""
        self.changes.append(GuestChange(time.time() - self.began, instance, node, state))


@dataclass
class FakeWatch(Watch):
    """Sees fake guests, which are files."""

    _seen: frozenset[tuple[str, str]] = frozenset()

    def look(self) -> None:
        """See the base class."""
        found = frozenset(self._guests())
        for instance, node in sorted(found - self._seen):
            self.note(instance, node, GuestState.UP)
        for instance, node in sorted(self._seen - found):
            self.note(instance, node, GuestState.DOWN)
        self._seen = found

    def _guests(self) -> Iterator[tuple[str, str]]:
        for node in self.cluster.cluster.nodes:
            for path in node.paths.fake_hypervisor.glob("*.json"):
                if _state(path) in ALIVE and path.stem in self.names:
                    yield self.names[path.stem], node.name


def _state(path: Path) -> str:
    try:
        return str(msgspec.json.decode(path.read_bytes())["state"])
    except FileNotFoundError:
        return ""


_JOB_FIELDS = [
    "id",
    "status",
    "summary",
    "received_ts",
    "opstatus",
    "opstart",
    "opexec",
    "opend",
    "end_ts",
]


def _job_ids(client: LuxiClient) -> list[int]:
    return [int(row[0][1]) for row in client.query("job", ["id"])["data"]]


def _job_records(client: LuxiClient, after: int, began: float) -> list[JobRecord]:
    rows = client.query("job", _JOB_FIELDS)["data"]
    found = (dict(zip(_JOB_FIELDS, (cell[1] for cell in row), strict=True)) for row in rows)
    records = [_job_record(row, began) for row in found if int(row["id"]) > after]
    return sorted(records, key=lambda one: one.number)


def _job_record(row: Mapping[str, Any], began: float) -> JobRecord:
    def at(value: Any) -> float | None:
        return None if not value else value[0] + value[1] / 1e6 - began

    columns = (row[name] for name in ("summary", "opstatus", "opstart", "opexec", "opend"))
    ops = tuple(
        OpRecord(summary=summary, status=status, start=at(start), exec=at(begun), end=at(end))
        for summary, status, start, begun, end in zip(*columns, strict=True)
    )
    return JobRecord(
        int(row["id"]), row["status"], at(row["received_ts"]) or 0.0, ops, at(row["end_ts"])
    )


# What is compared

Job = tuple[str, str, int]
"""Kind, subject, and the how manieth of these."""


@dataclass(frozen=True)
class Facts:
    """What of a history must be the same in the simulation and in reality."""

    homes: Mapping[str, str]
    """Instance -> its node in the configuration at the end."""
    running: Mapping[str, str]
    """Instance -> the node where its guest runs at the end; '' if nowhere."""
    jobs: Sequence[Job]
    """In the order in which they were submitted."""
    statuses: Mapping[Job, str]
    downtimes: Mapping[tuple[str, int], float]
    """Instance, and the how manieth of its outages -> seconds; those of instances that are still down at the end are left out."""
    works: Mapping[Job, float]
    """Seconds from the moment that a job has its locks to its end."""


def facts_of(history: History) -> Facts:
    """Return the facts of a history."""
    nodes = {one.uuid: one.name for one in history.after if isinstance(one, Node)}
    instances = [one for one in history.after if isinstance(one, Instance)]
    jobs = list(_numbered(history.jobs))
    counted: Counter[str] = Counter()
    downtimes = {}
    for one in outages(history, frozenset()):
        if one.is_over:
            downtimes[one.instance, counted[one.instance]] = one.length
            counted[one.instance] += 1
    return Facts(
        homes={one.name: nodes[one.primary_node] for one in instances},
        running={one.name: _running_on(history, one.name) for one in instances},
        jobs=[job for job, _op, _status in jobs],
        statuses={job: status for job, _op, status in jobs},
        downtimes=downtimes,
        works={
            job: op.end - op.exec
            for job, op, _status in jobs
            if op.exec is not None and op.end is not None and op.kind not in WAITS
        },
    )


def _running_on(history: History, instance: str) -> str:
    """Return the node on which the guest is at the end."""
    running: set[str] = set()
    for change in sorted(history.guests, key=lambda one: one.at):
        if change.instance != instance:
            continue
        if change.state is GuestState.DOWN:
            running.discard(change.node)
        elif change.state is GuestState.MOVED:
            running = {change.node}
        elif change.state is GuestState.UP:
            running.add(change.node)
    return ", ".join(sorted(running))


def _numbered(jobs: Iterable[JobRecord]) -> Iterator[tuple[Job, OpRecord, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for job in sorted(jobs, key=lambda one: one.number):
        for op in job.ops:
            if op.kind not in AROUND:
                yield (op.kind, op.subject, counted[op.kind, op.subject]), op, job.status
                counted[op.kind, op.subject] += 1


def differences(simulated: Sequence[History], real: History, slack: float | None) -> list[str]:
    """Return in what a real history differs from those of several seeds.

    Times are compared with their intervals, which are wider by `slack`; with None they are not compared.
    """
    seeds, own = [facts_of(one) for one in simulated], facts_of(real)
    times = [
        *_of_times("is down for", [one.downtimes for one in seeds], own.downtimes, slack or 0.0),
        *_of_times("works for", [one.works for one in seeds], own.works, slack or 0.0),
    ]
    return [
        *_of_places("ends with its primary node", [one.homes for one in seeds], own.homes),
        *_of_places("runs at the end on", [one.running for one in seeds], own.running),
        *_of_places("ends as", [one.statuses for one in seeds], own.statuses),
        *_of_order([one.jobs for one in seeds], own.jobs),
        *(times if slack is not None else ()),
    ]


def _of_places(
    what: str, seeds: Sequence[Mapping[Any, str]], own: Mapping[Any, str]
) -> Iterator[str]:
    """Compare what each thing is; it may be what it is with any of the seeds."""
    expected: dict[Any, set[str]] = defaultdict(set)
    for one in seeds:
        for key in {*own, *(key for seed in seeds for key in seed)}:
            expected[key].add(one.get(key, "nothing"))
    for key, values in expected.items():
        found = own.get(key, "nothing")
        if found not in values:
            yield f"{_shown(key)} {what} {found}, in the simulation {' or '.join(sorted(values))}"


def _of_order(seeds: Sequence[Sequence[Job]], own: Sequence[Job]) -> Iterator[str]:
    """Compare the order of each pair of jobs that has the same order with all seeds."""
    orders = [{job: index for index, job in enumerate(one)} for one in seeds]
    common = set(own).intersection(*orders)
    for first, second in combinations([one for one in own if one in common], 2):
        if all(one[first] > one[second] for one in orders):
            yield f"{_shown(first)} comes before {_shown(second)}, in the simulation after it"


def _of_times(
    what: str,
    seeds: Sequence[Mapping[Any, float]],
    own: Mapping[Any, float],
    slack: float,
) -> Iterator[str]:
    """Compare each time with its interval over the seeds."""
    for key in sorted({*own, *(key for one in seeds for key in one)}):
        values = [one[key] for one in seeds if key in one]
        found = own.get(key)
        if found is None and len(values) == len(seeds):
            yield f"{_shown(key)} {what} no time, in the simulation {_interval(values)}"
        elif found is not None and not values:
            yield f"{_shown(key)} {what} {found:.2f} s, in the simulation never"
        elif found is not None and not min(values) - slack <= found <= max(values) + slack:
            yield f"{_shown(key)} {what} {found:.2f} s, in the simulation {_interval(values)}, ± {slack:.2f} s"


def _interval(values: Collection[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} s"


def _shown(key: Any) -> str:
    match key:
        case (str(kind), str(subject), int(number)):
            return f"{kind}({subject})" + (f" number {number + 1}" if number else "")
        case (str(name), int(number)):
            return name + (f", outage {number + 1}," if number else "")
    return str(key)
