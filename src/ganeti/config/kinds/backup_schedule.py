"""Schedules of backups, and the memory of the master for their instances."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode
from ganeti.base.identifiers import plain_name
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.objects import Cluster


def _claims(_cluster: Cluster, schedule: BackupSchedule) -> Iterator[Claim]:
    yield Claim("schedule name", schedule.name)


def _problems(view: View, schedule: BackupSchedule) -> Iterator[Problem]:
    where = f"schedule {schedule.name}"
    yield from name_problems(plain_name, schedule.name, "schedule name")
    for group in schedule.groups:
        if group not in view.groups:
            yield ErrorCode.UNKNOWN_ENTITY, f"{where}: its group {group} does not exist"
    if schedule.node is not None and schedule.node not in view.nodes:
        yield ErrorCode.UNKNOWN_ENTITY, f"{where}: its node {schedule.node} does not exist"


BACKUP_SCHEDULE = Kind("schedule", BackupSchedule, _claims, _problems)
BACKUP_RUN = Kind("backup-run", BackupRun)
