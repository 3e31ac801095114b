"""States of clusters as backups: made offline, opened, and written with the merged configuration."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from ganeti.base.errors import ConfigurationError, ErrorCode, PrereqError
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import own_identity
from ganeti.bootstrap.restore import examine
from ganeti.config.kinds import kind_named
from ganeti.config.merging.merge import merge
from ganeti.config.merging.plan import Finding, MergeOptions, MergePlan, Severity
from ganeti.config.snapshot import Snapshot
from ganeti.config.upgrade import Reader
from ganeti.model.objects import Cluster, NodeUuid
from ganeti.store.backends import state_restorer
from ganeti.store.backup import BackupHeader, read_backup, write_backup
from ganeti.store.interface import Identity, Position, Row
from ganeti.upstream.choices import Choices
from ganeti.upstream.forms import parse
from ganeti.upstream.reading import translate
from ganeti.upstream.report import Verdict


class Memory:
    """A `ByteSink` in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        self.data += data


@dataclass(frozen=True)
class Opened:
    """A cluster's state."""

    snapshot: Snapshot
    unfinished: tuple[int, ...]
    """Jobs that had not ended."""
    last_job: int
    findings: tuple[Finding, ...] = ()
    """Changes made while reading it."""


def opened(data: bytes) -> Opened:
    """Return the configuration in a backup; StoreError or ConfigurationError if it is damaged."""
    items = read_backup(BytesIO(data).read)
    header = next(items)
    if not isinstance(header, BackupHeader):
        raise ConfigurationError("this is not a backup of a state store")
    content = examine(BytesIO(data), Identity(header.cluster_uuid, NodeUuid("")))
    reader = Reader(RandomIds())
    for row in items:
        if isinstance(row, Row) and kind_named(row.kind):
            reader.add(row.kind, row.key, row.value)
    reader.finish()
    (cluster,) = [thing for thing in reader.objects if isinstance(thing, Cluster)]
    others = [thing for thing in reader.objects if thing is not cluster]
    return Opened(
        Snapshot.of(header.position.as_int(), cluster, others=others),
        tuple(sorted(job for job, has_ended in content.jobs.items() if not has_ended)),
        max((content.ceiling, *content.jobs)),
    )


def opened_original(data: bytes, choices: Choices) -> Opened:
    """Return the configuration of an upstream cluster without unfinished jobs.

    InputError if it is not one.
    """
    imported = translate(parse(data), choices)
    name = imported.cluster.name
    said = tuple(
        Finding(_SEVERITY[one.verdict], name, str(one).removeprefix(f"{one.verdict}: "))
        for one in imported.report.decisions
    )
    return Opened(Snapshot.of(0, imported.cluster, others=imported.others), (), 0, said)


_SEVERITY = {
    Verdict.REFUSED: Severity.ERROR,
    Verdict.CHANGED: Severity.DECISION,
    Verdict.KEPT: Severity.NOTE,
}


def planned(ours: Opened, theirs: Sequence[Opened], options: MergeOptions) -> MergePlan:
    """Return the merged configurations, with all problems found."""
    plan = merge(
        ours.snapshot, [one.snapshot for one in theirs], replace(options, watermark=ours.last_job)
    )
    read = [finding for one in theirs for finding in one.findings]
    return replace(plan, findings=(*read, *plan.findings))


async def offline_backup(paths: Paths) -> bytes:
    """Return a backup of this node's state; StoreError while the master daemon uses it."""
    identity = own_identity(paths)
    restorer = state_restorer(paths, identity)
    async with restorer.held():
        found = await restorer.present_state()
        if found.damage:
            raise ConfigurationError(f"the state in {paths.state} is damaged: {found.damage}")

        async def items() -> AsyncIterator[Position | Row]:
            yield found.position
            async for row in restorer.rows():
                yield row

        return await _written(items(), identity.cluster_uuid)


async def merged_backup(ours: bytes, plan: MergePlan) -> bytes:
    """Return the local backup with the plan's configuration instead of its own."""
    items = read_backup(BytesIO(ours).read)
    header = next(items)
    assert isinstance(header, BackupHeader)  # noqa: S101 - `opened` has read it
    rows = [row for row in items if isinstance(row, Row) and not kind_named(row.kind)]
    rows += [Row(row.kind, row.key, row.value) for row in plan.rows()]
    rows.sort(key=lambda row: (row.kind.encode(), row.key.encode()))

    async def all_items() -> AsyncIterator[Position | Row]:
        yield header.position
        for row in rows:
            yield row

    return await _written(all_items(), header.cluster_uuid)


async def _written(items: AsyncIterator[Position | Row], cluster_uuid: str) -> bytes:
    sink = Memory()
    await write_backup(items, sink, cluster_uuid)
    return bytes(sink.data)


def check_idle(state: Opened) -> None:
    """Raise PrereqError if jobs have not ended: no master would run or undo them."""
    if state.unfinished:
        jobs = ", ".join(str(job) for job in state.unfinished[:10])
        raise PrereqError(
            f"{state.snapshot.cluster.name} has jobs that have not ended ({jobs}): wait for them, or"
            " cancel them",
            ErrorCode.WRONG_STATE,
        )


def backups(directory: Path) -> Iterator[Path]:
    """Return the paths of the former states of both sides."""
    yield from sorted(directory.glob("*.backup"))
