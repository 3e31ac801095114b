"""Restores the cluster's state from a backup, on a master candidate whose master daemon is stopped.

A backup is older than the cluster's present state. So the restored state begins an epoch far beyond
all known ones, and job ids beyond all that may have been given out (R10, R12). A job that had not
ended is neither run again nor undone, because its outcome is unknown (G7).
"""

import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import msgspec

from ganeti.base import tls
from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, ExecError, HostError, PrereqError, StoreError
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import own_identity
from ganeti.config.kinds import KINDS, kind_named
from ganeti.config.transaction import put_row
from ganeti.config.upgrade import Reader
from ganeti.jobs.reading import read_stored
from ganeti.jobs.record import FORMAT as JOB_FORMAT
from ganeti.jobs.record import JOB_KIND
from ganeti.jobs.runner import NOT_RUN, failure
from ganeti.model import wire
from ganeti.model.job import StoredJob
from ganeti.model.names import JobStatus
from ganeti.model.objects import Cluster, Grant, Instance, Node, NodeUuid
from ganeti.recovery.grants import SHARED
from ganeti.store.archive import JobArchive
from ganeti.store.backend import PresentState, Restoration, StateRestorer
from ganeti.store.backends import state_restorer
from ganeti.store.backup import BackupHeader, read_backup
from ganeti.store.election import LastContact, forced_ceiling, forced_epoch
from ganeti.store.encoding import DIGEST_BYTES, MemberList, decode_ceiling, encode_ceiling
from ganeti.store.epochs import EXHAUSTED
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MAX_EPOCH,
    MEMBERS_KEY,
    META_KIND,
    Identity,
    Position,
    Row,
)
from ganeti.store.register import Register, RegisterFile
from ganeti.store.worker import Worker

UNKNOWN_END = (
    "the cluster's state was restored from a backup made before this job ended: its outcome is "
    "not known; check before submitting it again"
)
AskNodes = Callable[[Iterable[Node]], Awaitable[dict[NodeUuid, LastContact | None]]]
"""Returns the master of the last contact of each reachable node (`last_seen_masters`)."""
_NODE_KIND, _INSTANCE_KIND = KINDS[Node].name, KINDS[Instance].name
GRANT_LEAP = 1_000_000
"""More grants of a disk than there can be between a backup and its restore."""
_SHOWN_NAMES = 20
_COMPARED = ("node", "instance", JOB_KIND)


@dataclass
class Content:
    """The relevant content of a backup."""

    header: BackupHeader
    rows: int = 0
    cluster: Cluster | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[int, bool] = field(default_factory=dict)
    """True if each job had ended."""
    keys: set[tuple[str, str]] = field(default_factory=set)
    """Objects of the kinds that are compared with the present state."""
    ceiling: int = 0
    voters: frozenset[NodeUuid] = frozenset()

    @property
    def recovered_nodes(self) -> list[Node]:
        """Return the nodes about which automatic recovery had committed something."""
        return [node for node in self.nodes.values() if node.recovery is not None]


@dataclass(frozen=True)
class Restored:
    """The result of a restore, and the facts for an administrator."""

    position: Position
    lines: list[str]


async def restore(
    paths: Paths,
    backup: Path,
    *,
    clock: Clock,
    ask_nodes: AskNodes,
    is_sure: bool = False,
    is_undo: bool = False,
) -> Restored:
    """Replace this node's state with a backup; the daemons are not touched.

    The replaced state is preserved, unless it is the source of the backup, or `is_undo` marks it as
    a failed attempt.

    PrereqError if a restore is forbidden, for example while another master lives, or requires
    `is_sure`; StoreError for a damaged backup, a state in use, or a failing disk.
    """
    try:
        identity = own_identity(paths)
    except OSError as err:
        raise PrereqError(
            f"this host is not a member of a cluster ({err.filename}: {err.strerror}); a backup is"
            " restored on a master candidate of its cluster",
            ErrorCode.WRONG_STATE,
        ) from err
    register = RegisterFile(paths.register).read()
    assert register is not None  # noqa: S101 - `own_identity` has read it
    restorer = state_restorer(paths, identity)
    with _opened(backup) as file:
        async with restorer.held():
            content = examine(file, identity)
            _check_node(paths, content, identity)
            asked = [node for node in content.nodes.values() if not node.offline]
            silent = _check_no_master(content, identity, asked, await ask_nodes(asked))
            found = await restorer.present_state()
            if not is_sure:
                _check_newer(content, found, register, identity)
            archived = await _archived(paths, content)
            try:
                covered = [content.header.position, *([found.position] if is_undo else [])]
                plan = _Plan(identity, register, content, found, archived, silent, tuple(covered))
                return await _replace(restorer, file, plan, clock)
            except OSError as err:
                raise HostError(f"cannot write {err.filename}: {err.strerror}") from err


@dataclass(frozen=True)
class _Plan:
    identity: Identity
    register: Register
    content: Content
    found: PresentState
    archived: frozenset[int]
    silent: list[str]
    """Nodes that did not report whether another master lives."""
    covered: tuple[Position, ...]

    @property
    def position(self) -> Position:
        """Return a position far beyond every epoch that this node knows (R10)."""
        known = max(
            self.register.promised.epoch,
            self.content.header.position.epoch,
            self.found.position.epoch,
            self.found.epoch,
        )
        epoch = forced_epoch(self.identity.node_uuid, known + 1)
        if epoch > MAX_EPOCH:
            raise StoreError(EXHAUSTED)
        return Position(epoch, 1)

    @property
    def ceiling(self) -> int:
        """Return the value that all job ids of the restored cluster exceed (R12)."""
        known = max(
            self.register.job_id_ceiling,
            self.content.ceiling,
            self.found.job_id_ceiling,
            max(self.content.jobs, default=0),
        )
        return forced_ceiling(self.identity.node_uuid, known)

    @property
    def voters(self) -> frozenset[NodeUuid]:
        """Return the last registered voters, so that no older majority elects another master (R3)."""
        accepted = self.register.accepted
        return accepted.voters if accepted and accepted.voters else self.content.voters


async def _replace(restorer: StateRestorer, file: BinaryIO, plan: _Plan, clock: Clock) -> Restored:
    lost = [] if plan.found.damage else await _lost(restorer, plan)
    position, ceiling = plan.position, plan.ceiling
    digest = blake2b(
        f"{plan.identity.node_uuid} {plan.content.header}".encode(), digest_size=DIGEST_BYTES
    ).digest()
    file.seek(0)
    rows = _restored_rows(file, plan, ceiling, clock.time())
    wanted = Restoration(position, digest, ceiling, plan.voters, plan.covered)
    return Restored(position, _remarks(plan, await restorer.replace(wanted, rows), lost))


# Looking at the backup


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file, which can be read twice and never blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        raise PrereqError(f"cannot read {path}: {err.strerror}", ErrorCode.WRONG_INPUT) from err
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PrereqError(f"{path} is not a regular file", ErrorCode.WRONG_INPUT)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def examine(file: BinaryIO, identity: Identity) -> Content:
    """Read a backup to its end; StoreError if it is damaged, PrereqError if it is of another cluster."""
    items = read_backup(file.read)
    header = next(items)
    if not isinstance(header, BackupHeader):
        raise StoreError("this is not a backup of a state store")
    if header.cluster_uuid != identity.cluster_uuid:
        raise PrereqError(
            f"the backup is of cluster {header.cluster_uuid}, and this node belongs to"
            f" {identity.cluster_uuid}",
            ErrorCode.WRONG_INPUT,
        )
    content, reader = Content(header), Reader(RandomIds())
    for row in items:
        if isinstance(row, Row):
            content.rows += 1
            _look_at(content, reader, row, identity)
    reader.finish()
    for thing in reader.objects:
        if isinstance(thing, Cluster):
            content.cluster = thing
        elif isinstance(thing, Node):
            content.nodes[thing.uuid] = thing
    if content.cluster is None or content.cluster.uuid != header.cluster_uuid:
        raise StoreError("the backup has no configuration of its cluster")
    return content


def _look_at(content: Content, reader: Reader, row: Row, identity: Identity) -> None:
    if kind_named(row.kind):
        reader.add(row.kind, row.key, row.value)
    elif row.kind == JOB_KIND:
        job = _job_of(row)
        content.jobs[job.id] = _has_ended(job)
    elif row.kind == META_KIND and row.key == JOB_ID_CEILING_KEY:
        content.ceiling = decode_ceiling(row.value)
    elif row.kind == META_KIND and row.key == MEMBERS_KEY:
        content.voters = MemberList.decode(row.value, identity.node_uuid).voters
    if row.kind in _COMPARED:
        content.keys.add((row.kind, row.key))


def _job_of(row: Row) -> StoredJob:
    job = read_stored(row.value, StoredJob, what=f"job {row.key}")
    if job.format > JOB_FORMAT:
        raise StoreError(f"job {job.id} was written by a newer version; restore with that version")
    return job


def _has_ended(job: StoredJob) -> bool:
    if not job.ops:
        return job.end is not None
    return all(state.status.is_final for state in job.ops)


# Conditions


def _check_node(paths: Paths, content: Content, identity: Identity) -> None:
    node = content.nodes.get(identity.node_uuid)
    if node is None or not node.master_candidate:
        raise PrereqError(
            "this node is not a master candidate in the backup: restore it on one of "
            + ", ".join(sorted(one.name for one in content.nodes.values() if one.master_candidate)),
            ErrorCode.WRONG_STATE,
        )
    if node.certificate != tls.fingerprint(paths.node_certificate.read_bytes()):
        raise PrereqError(
            (
                "this node's certificate has changed since the backup was made, so the other "
                "nodes would not accept it as the master; restore the backup on another candidate"
            ),
            ErrorCode.WRONG_STATE,
        )


def _check_no_master(
    content: Content,
    identity: Identity,
    asked: list[Node],
    heard: dict[NodeUuid, LastContact | None],
) -> list[str]:
    """Raise PrereqError if any node knows another live master; return the nodes that did not answer."""
    for node in asked:
        last = heard.get(node.uuid)
        if last is None or last.master == identity.node_uuid or last.seconds >= last.silence_s:
            continue
        master = content.nodes.get(last.master)
        name = master.name if master else last.master
        raise PrereqError(
            f"{name} is the master: its last contact with {node.name} was {last.seconds:.1f} s ago. Stop ganeti-masterd"
            f" there first, and repeat this {last.silence_s:g} s later; or restore the backup there",
            ErrorCode.WRONG_STATE,
        )
    silent = {node.uuid: node.name for node in asked if node.uuid not in heard}
    silent.pop(identity.node_uuid, None)
    return sorted(silent.values())


def _check_newer(
    content: Content, found: PresentState, register: Register, identity: Identity
) -> None:
    """Raise PrereqError where a newer state may exist, here or on others."""
    how = "; to discard it, repeat the command with --yes-do-it"
    if found.damage:
        raise PrereqError(
            f"the state on this node cannot be opened, and the restore would replace it: {found.damage}{how}",
            ErrorCode.EXISTS,
        )
    if found.position > content.header.position:
        raise PrereqError(
            f"the state on this node ({_shown(found.position)}) is newer than the backup"
            f" ({_shown(content.header.position)}): start ganeti-masterd, and nothing is lost{how}",
            ErrorCode.EXISTS,
        )
    accepted = register.accepted
    others = accepted.sync_set - {identity.node_uuid} if accepted else frozenset[NodeUuid]()
    if others:
        names = (content.nodes[uuid].name if uuid in content.nodes else uuid for uuid in others)
        raise PrereqError(
            f"{', '.join(sorted(names))} had the last state too: run 'gnt-cluster master-failover'"
            f" there, and nothing is lost{how}",
            ErrorCode.EXISTS,
        )


async def _archived(paths: Paths, content: Content) -> frozenset[int]:
    """Return the backup's jobs that were archived since: their outcome is known."""
    if not content.jobs or not paths.job_archive.exists():
        return frozenset()
    worker = Worker("archive")
    try:
        archive = await JobArchive.open(paths.job_archive, worker)
        try:
            missing = await archive.missing([(job_id, job_id) for job_id in content.jobs])
        finally:
            await archive.close()
    finally:
        await worker.close()
    return frozenset(content.jobs.keys() - set(missing))


# The new state


def _restored_rows(file: BinaryIO, plan: _Plan, ceiling: int, now: float) -> Iterator[Row]:
    """Yield the rows of the backup, with unfinished jobs as errors, and the new ceiling of job ids.

    What automatic recovery had committed about a node or an instance may have changed since, and must not be trusted
    (D12).
    """
    distrusted = {node.uuid: _without_recovery(node) for node in plan.content.recovered_nodes}
    for row in read_backup(file.read):
        if isinstance(row, BackupHeader):
            if row != plan.content.header:
                raise StoreError("the backup was changed while it was read")
        elif row.kind == JOB_KIND:
            job = _job_of(row)
            if job.id not in plan.archived:
                yield row if _has_ended(job) else _ended(row, job, now)
        elif row.kind == _NODE_KIND and row.key in distrusted:
            yield distrusted[NodeUuid(row.key)]
        elif row.kind == _INSTANCE_KIND and any(word in row.value for word in _DISTRUSTED):
            yield _protected_later(wire.decode(row.value, Instance))
        elif (row.kind, row.key) != (META_KIND, JOB_ID_CEILING_KEY):
            yield row
    yield Row(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))


def _without_recovery(node: Node) -> Row:
    """Return a node that is neither fenced nor known to have an armed watchdog."""
    put = put_row(msgspec.structs.replace(node, recovery=None))
    return Row(put.kind, put.key, put.value)


_DISTRUSTED = (b'"generation":', b'"under_lease":')


def _protected_later(instance: Instance) -> Row:
    """Return an instance that counts as protected when its node has confirmed that again.

    Its grants are newer than those that nodes may have recorded since the backup; otherwise the nodes would refuse its
    next starts. The second copy of a mirrored disk may have been dropped since: it counts again once it is synchronised.
    """

    def later(grant: Grant) -> Grant:
        copy = SHARED if SHARED in grant.current else instance.primary_node
        return replace(grant, generation=grant.generation + GRANT_LEAP, current=frozenset({copy}))

    disks = tuple(
        msgspec.structs.replace(disk, grant=later(disk.grant)) if disk.grant is not None else disk
        for disk in instance.disks
    )
    put = put_row(msgspec.structs.replace(instance, disks=disks, under_lease=False))
    return Row(put.kind, put.key, put.value)


def _ended(row: Row, job: StoredJob, now: float) -> Row:
    """Return a job with an unknown outcome, which never runs again and is not undone."""
    result = failure(ExecError(UNKNOWN_END)).result
    states = []
    for state in job.ops:
        if not state.status.is_final:
            state = msgspec.structs.replace(  # noqa: PLW2901 - the same, ended
                state, status=JobStatus.ERROR, result=result, end=max(now, job.received)
            )
            result = NOT_RUN
        states.append(state)
    ended = msgspec.structs.replace(
        job,
        ops=tuple(states),
        end=max(now, job.received),
        undo=(),
        pending=(),
        cancel_requested=False,
    )
    return Row(row.kind, row.key, wire.encode(ended))


# Messages


async def _lost(restorer: StateRestorer, plan: _Plan) -> list[str]:
    """Return the objects of the replaced state that the backup lacks."""
    if plan.found.position <= Position(0, 0):
        return []
    gone: dict[str, list[str]] = {kind: [] for kind in _COMPARED}
    async for row in restorer.rows():
        if row.kind in gone and (row.kind, row.key) not in plan.content.keys:
            gone[row.kind].append(_name_of(row))
    return [
        f"not in the backup, and lost: {len(names)} {kind}s ({_some(names)})"
        for kind, names in gone.items()
        if names
    ]


def _name_of(row: Row) -> str:
    if row.kind == JOB_KIND:
        return row.key.lstrip("0")
    return str(msgspec.json.decode(row.value).get("name", row.key))


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return f"{shown}, …" if len(names) > _SHOWN_NAMES else shown


def _shown(position: Position) -> str:
    return f"position {position.as_int()}: epoch {position.epoch}, serial {position.serial}"


def _remarks(plan: _Plan, aside: str, lost: list[str]) -> list[str]:
    content, found = plan.content, plan.found
    cluster = content.cluster.name if content.cluster else ""
    begun = (
        f"restored cluster {cluster} as of {_shown(content.header.position)} ({content.rows} "
        f"rows); it continues at {_shown(plan.position)}, with job ids above {plan.ceiling}"
    )
    lines = [begun]
    if found.position > Position(0, 0):
        lines.append(f"the replaced state ended at {_shown(found.position)}")
    accepted = plan.register.accepted
    if accepted and accepted.epoch > content.header.position.epoch:
        lines.append(
            f"the backup is of epoch {content.header.position.epoch}, and the cluster had a "
            f"master in epoch {accepted.epoch}: changes made in between are lost"
        )
    lines += lost
    if plan.silent:
        lines.append(
            f"{_some(plan.silent)} did not report whether another master lives: make sure that "
            "none does, because its epoch ends at the first contact with this master"
        )
    if aside:
        lines.append(f"the replaced state is preserved in {aside}")
    if names := [node.name for node in content.recovered_nodes]:
        lines.append(
            f"automatic recovery forgets which nodes were fenced, and which watchdogs were armed ({_some(names)});"
            " it learns this from the nodes: run 'gnt-cluster ha-status'"
        )
    unknown = [str(job_id) for job_id, ended in sorted(content.jobs.items())
               if not ended and job_id not in plan.archived]  # fmt: skip
    if unknown:
        lines.append(
            f"{len(unknown)} jobs had not ended when the backup was made, and are errors now, "
            f"because their outcome is unknown: {_some(unknown)}"
        )
    lines.append(
        "instances and disks created since the backup still exist on the nodes: run 'gnt-cluster "
        "verify'"
    )
    return lines
