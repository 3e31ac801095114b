"""Fields of incremental backups: each in a directory of the node that has it."""

from collections.abc import Callable
from dataclasses import dataclass

from ganeti.model.objects import Node
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import NO_DATA, OFFLINE, UNAVAILABLE, Field, Missing, Need, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.rpc.procedures.backups import PointInfo

MIB = 1024 * 1024


@dataclass(frozen=True)
class BackupRow:
    """One backup; for a node without a report, a row with the reason."""

    node: Node
    point: PointInfo | Missing


def backup_rows(context: QueryContext) -> list[BackupRow]:
    """Return every backup of every node, by the nodes' names; those of an instance from the oldest to the newest."""
    rows = []
    for node in sorted(context.snapshot.nodes.values(), key=lambda one: one.name):
        found = OFFLINE if node.offline else context.live.backups.get(node.uuid, NO_DATA)
        if isinstance(found, Missing):
            rows.append(BackupRow(node, found))
        else:
            rows += [BackupRow(node, one) for one in found]
    return rows


def _of(value: Callable[[PointInfo], object]) -> Callable[[BackupRow], object]:
    """Return the value of a field, or why it is missing."""

    def get(row: BackupRow) -> object:
        if isinstance(row.point, Missing):
            return row.point
        found = value(row.point)
        return UNAVAILABLE if found is None else found

    return get


_NEEDS = frozenset((Need.BACKUPS,))
_TEXT, _SIZE = ValueKind.TEXT, ValueKind.UNIT


def _field(
    name: str,
    title: str,
    kind: ValueKind,
    doc: str,
    value: Callable[[PointInfo], object],
    *,
    is_host_name: bool = False,
) -> Field[BackupRow]:
    return Field(name, title, kind, doc, _of(value), needs=_NEEDS, is_host_name=is_host_name)


_FIELDS: tuple[Field[BackupRow], ...] = (
    Field("node", "Node", _TEXT, "Node that holds the backup", lambda r: r.node.name, needs=_NEEDS,
        is_host_name=True),
    _field("target", "Target", _TEXT, "Directory for backups on that node", lambda p: p.target),
    _field("instance", "Instance", _TEXT, "Name of the instance", lambda p: p.instance, is_host_name=True),
    _field("backup", "Backup", _TEXT, "Name of the backup, its time in UTC", lambda p: p.point),
    _field("ctime", "CTime", ValueKind.TIMESTAMP, "Time of the backup", lambda p: None if p.problem else p.time),
    _field("parent", "Parent", _TEXT, "The backup before it", lambda p: p.parent or None),
    _field("consistency", "Consistency", _TEXT, "Content of the disks: down, agent or crash",
        lambda p: p.consistency and p.consistency.value),
    _field("disk_size", "DiskSize", _SIZE, "Size of the disks together",
        lambda p: None if p.problem else sum(one.size for one in p.disks) // MIB),
    _field("stored", "Stored", _SIZE, "Size of its own images", lambda p: None if p.problem else p.stored // MIB),
    _field("schedule", "Schedule", _TEXT, "UUID of the schedule that made it", lambda p: p.schedule or None),
    _field("key", "Key", _TEXT, "Id of the backup key that encrypts it", lambda p: p.key_id or None),
    _field("proof", "Proof", _TEXT,
        "What its check and its drill have shown: good, failed or unproven",
        lambda p: None if p.problem else p.proof.state.value),
    _field("checked", "Checked", ValueKind.TIMESTAMP, "Time of the last check, if that was good and still counts",
        lambda p: p.proof.checked or None),
    _field("drilled", "Drilled", ValueKind.TIMESTAMP, "Time of the last drill, if that was good",
        lambda p: p.proof.drilled or None),
    _field("failure", "Failure", _TEXT, "The first problem that its check or its drill found",
        lambda p: p.proof.why or None),
    _field("problem", "Problem", _TEXT, "Why its manifest is unusable", lambda p: p.problem or None),
)  # fmt: skip

BACKUP_FIELDS = table(_FIELDS)
