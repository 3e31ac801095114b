"""Imports a configuration of upstream as a cluster on this host, and exports a cluster.

The first node of an imported cluster is this host, as with `gnt-cluster init`: new certificates,
new state. The other nodes are known and offline until `gnt-node add --readd` has joined them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ganeti import uidpool
from ganeti.base import tls
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError, StoreError
from ganeti.base.files import read_at_most, write_atomically
from ganeti.base.ids import IdSource, RandomIds
from ganeti.base.paths import NODED_PORT, Paths
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.init import (
    HOW_TO_LEAVE,
    STEPS,
    FirstState,
    InitContext,
    InitOptions,
    NewCluster,
    Step,
    check_addresses,
    make_state,
    run_steps,
)
from ganeti.bootstrap.membership import check_not_member
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, kind_named, kind_of, problems_of
from ganeti.config.snapshot import Snapshot
from ganeti.config.upgrade import Reader
from ganeti.model.job_filter import JobFilter
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, Node
from ganeti.model.stored import Stored
from ganeti.query.job_filters import check_predicates, check_reasons
from ganeti.store.backup import BackupHeader, read_backup
from ganeti.store.interface import Row
from ganeti.upstream.choices import Choices
from ganeti.upstream.forms import LARGEST, Document, parse
from ganeti.upstream.nodes import apart
from ganeti.upstream.reading import translate
from ganeti.upstream.report import Judge, Report
from ganeti.upstream.writing import document_of

_YES_NO = {True: "yes", False: "no"}
_ONE = "change one of them there first, or in a copy of the file"
REST_S = 10 * 365 * 86400
"""Duration of the watcher's pause after an import, unless an administrator ends it."""
SERIAL_DIGITS = 12
"""A longer number is not a job id."""


@dataclass(frozen=True)
class ImportPlan:
    """The effect of an import on this host; must not be carried out while the report refuses something."""

    data: bytes
    """The imported file."""
    cluster: Cluster
    master: Node | None
    others: tuple[Stored, ...]
    """All objects except the cluster and its master."""
    report: Report
    drained: frozenset[str] = frozenset()
    """Nodes to make offline or drained again once they are added."""
    last_job: int = 0
    """Job ids begin above it, so that filters keep their meaning."""

    def lines(self) -> list[str]:
        """The report and the effects as lines of text."""
        found = list(self.report.lines())
        if self.report.refused or self.master is None:
            return found
        nodes = sorted(one.name for one in self.others if isinstance(one, Node))
        up = sum(
            isinstance(one, Instance) and one.admin_state is AdminState.UP for one in self.others
        )
        found.append(f"{self.master.name}, this host, becomes the master of {self.cluster.name}")
        for name in nodes:
            drained = " --drained" if name in self.drained else ""
            found.append(f"{name} is offline until 'gnt-node add --readd{drained} {name}'")
        if self.last_job:
            found.append(f"job ids begin at {self.last_job + 1}, because job filters name ids")
        if up:
            found.append(
                f"{up} instances are to run: the watcher is paused until 'gnt-cluster watcher "
                "continue', so that it starts none that still runs elsewhere"
            )
        return found


def plan_import(data: bytes, host: str, choices: Choices, *, last_job: int = 0) -> ImportPlan:
    """Return the effect of importing a file on the host of this name.

    InputError if it is not a configuration.

    `last_job` is the greatest known job id of upstream.
    """
    imported = translate(parse(data), choices)
    judge = Judge(keep_unknown=False, report=imported.report)
    renamed = {one.what for one in imported.report.decisions if one.field == "name"}
    for (kind, old), new in choices.names.items():
        if f"{kind} {old}" not in renamed and new != old:
            judge.refuse(f"{kind} {old}", "", "is not in the file", "check the value of --rename")
    nodes = [one for one in imported.others if isinstance(one, Node)]
    master = next((node for node in nodes if node.name == host), None)
    rest = [one for one in imported.others if one is not master]
    cluster = imported.cluster
    if master is None:
        names = ", ".join(node.name for node in nodes[:5]) or "none"
        judge.refuse(
            "cluster",
            "master_node",
            f"this host is {host}, and the nodes are {names}",
            f"run it on one of them, or give one this host's name: --rename='node:OLD={host}'",
        )
    else:
        for name, is_so in (("offline", False), ("drained", False), ("master_capable", True)):
            if getattr(master, name) is not is_so:
                judge.change(
                    f"node {master.name}", name, f"is {_YES_NO[is_so]} now: it is the master"
                )
        master = replace(
            master,
            offline=False,
            drained=False,
            master_capable=True,
            master_candidate=True,
            port=NODED_PORT,
        )
        if cluster.master_node != master.uuid:
            judge.change("cluster", "master_node", f"is {master.name} now")
        cluster = replace(cluster, master_node=master.uuid)
    others = tuple(apart(one) if isinstance(one, Node) else one for one in rest)
    drained = frozenset(one.name for one in rest if isinstance(one, Node) and one.drained)
    for problem in uidpool.host_conflicts(cluster.uid_pool):
        judge.refuse("cluster", "uid_pool", f"on this node {problem}")
    if master is not None:
        _judge_rules(judge, (cluster, master, *others))
    marks = (one.watermark for one in others if isinstance(one, JobFilter))
    last_job = max((last_job, *marks))
    return ImportPlan(data, cluster, master, others, imported.report, drained, last_job)


def last_job_of(config: Path) -> int:
    """Return the greatest job id in the queue beside a configuration of upstream; 0 without a queue."""
    try:
        text = (config.parent / "queue" / "serial").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdecimal() and len(text) <= SERIAL_DIGITS else 0


def _judge_rules(judge: Judge, objects: tuple[Stored, ...]) -> None:
    """Report rules that the whole configuration breaks."""
    cluster = objects[0]
    assert isinstance(cluster, Cluster)  # noqa: S101 - the first
    snapshot = Snapshot.of(0, cluster, others=objects[1:])
    for one in objects:
        for _code, text in problems_of(snapshot, one):
            judge.refuse("configuration", "", text)
        if isinstance(one, JobFilter):
            _judge_filter(judge, one)
    _, conflicts = index_of(entry_of(cluster, one) for one in objects)
    known: dict[str, Stored] = {}
    for one in objects:
        if (other := known.setdefault(one.uuid, one)) is not one:
            judge.refuse(_called(one), "uuid", f"{_called(other)} has {one.uuid} too", _ONE)
    for claim, claimant, owner in conflicts:
        one, other = known[claimant], known[owner]
        judge.refuse(_called(one), claim.kind, f"{_called(other)} has {claim.value} too", _ONE)


def _called(thing: Stored) -> str:
    return f"{kind_of(thing)} {thing.name}"


def _judge_filter(judge: Judge, job_filter: JobFilter) -> None:
    """Refuse invalid predicates of filters, because the daemons ignore them."""
    try:
        check_predicates(list(job_filter.predicates))
        check_reasons(list(job_filter.reason_trail))
    except InputError as err:
        judge.refuse(f"filter {job_filter.uuid}", err.field, err.message)


async def import_cluster(
    plan: ImportPlan,
    *,
    paths: Paths,
    port: int = NODED_PORT,
    daemons: Daemons | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> NewCluster:
    """Carry a plan out; after any error nothing of the cluster remains (but log files).

    PrereqError if something is refused, or the node is in a cluster; HostError if a step failed.
    """
    if plan.report.refused or plan.master is None:
        raise PrereqError(
            f"refused objects or values: {len(plan.report.refused)}; nothing was created",
            ErrorCode.WRONG_INPUT,
        )
    check_not_member(paths, HOW_TO_LEAVE)
    cluster, master = plan.cluster, replace(plan.master, port=port)
    options = InitOptions(
        cluster_name=cluster.name,
        node_name=master.name,
        primary_ip=master.primary_ip,
        secondary_ip=master.secondary_ip,
        port=port,
    )
    check_addresses(options)

    def objects(new: InitContext) -> tuple[Stored, ...]:
        here = replace(master, certificate=tls.fingerprint(new.certificate))
        return (cluster, here, *plan.others)

    async def keep_original(new: InitContext) -> None:
        """Store the imported file and the files that the cluster keeps using, and pause the watcher."""
        _carry(new.paths)
        write_atomically(new.paths.imported, plan.data)
        until = f"{new.clock.time() + REST_S:.0f}\n".encode()
        write_atomically(new.paths.watcher_pause, until, mode=0o640)

    steps: list[Step] = list(STEPS)
    steps.insert(steps.index(make_state) + 1, keep_original)
    return await run_steps(
        options,
        cluster,
        FirstState(objects, plan.last_job),
        paths=paths,
        daemons=daemons or Daemons(paths),
        clock=clock or SystemClock(),
        ids=ids or RandomIds(),
        steps=steps,
    )


def _carry(paths: Paths) -> None:
    """Carry over the REST users and the domain secret of a cluster of upstream on this host."""
    for theirs, ours in (
        (paths.upstream / "rapi" / "users", paths.rapi_users),
        (paths.upstream / paths.cluster_domain_secret.name, paths.cluster_domain_secret),
    ):
        if theirs.is_file() and not ours.exists():
            write_atomically(ours, theirs.read_bytes())


async def state_objects(paths: Paths) -> list[Stored]:
    """Return the objects of the local master's cluster at one moment; HostError, StoreError."""
    backup = paths.export_backup
    try:
        client = await AsyncLuxiClient.connect(paths.luxi_socket)
        try:
            await client.call("BackupState", str(backup))
        finally:
            await client.close()
        return await asyncio.to_thread(_read_objects, backup)
    except OSError as err:
        raise HostError(f"the master daemon of this node does not answer: {err}") from err
    finally:
        backup.unlink(missing_ok=True)


def _read_objects(backup: Path) -> list[Stored]:
    reader = Reader(RandomIds())
    with backup.open("rb") as file:
        items = read_backup(file.read)
        if not isinstance(next(items), BackupHeader):
            raise StoreError("this is not a backup of a state store")
        for row in items:
            if isinstance(row, Row) and kind_named(row.kind):
                reader.add(row.kind, row.key, row.value)
    reader.finish()
    return reader.objects


def original_of(paths: Paths, given: Path | None) -> Document | None:
    """Return the configuration that this cluster was imported from: the given file, or the stored one."""
    path = given or paths.imported
    if given is None and not path.exists():
        return None
    try:
        return parse(read_at_most(path, LARGEST))
    except OSError as err:
        raise HostError(f"cannot read {path}: {err.strerror}") from err


async def export_cluster(
    paths: Paths, original: Document | None, *, keep_unknown: bool
) -> tuple[Mapping[str, object], Report]:
    """Return the configuration of the running cluster in the form of 3.0, and a report."""
    objects = await state_objects(paths)
    return await asyncio.to_thread(document_of, objects, original, keep_unknown=keep_unknown)
