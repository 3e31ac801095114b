"""Findings about scheduled backups; pure."""

from collections.abc import Iterator

from ganeti.config.snapshot import Snapshot
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.schedules.alerts import is_old, limit_s, problem
from ganeti.units.cluster.findings import Finding


def backup_findings(snapshot: Snapshot, now: float) -> Iterator[Finding]:
    """Yield instances without a recent good backup, and names in schedules that no instance has."""
    schedules = snapshot.table(BackupSchedule)
    for run in snapshot.table(BackupRun).values():
        schedule, instance = schedules.get(run.schedule), snapshot.instances.get(run.instance)
        if (
            schedule is not None
            and instance is not None
            and is_old(run, limit_s(schedule, now), now)
        ):
            text = problem(schedule, run, now)
            yield Finding("EINSTANCEBACKUP", "instance", instance.name, text)
    for schedule in schedules.values():
        for name in schedule.instances:
            if snapshot.instance_by_name(name) is None:
                text = (
                    f"schedule {schedule.name} saves it, but it does not exist; to remove its name:"
                    f" gnt-backup schedule modify {schedule.name} --instances=NAME,..."
                )
                yield Finding("EINSTANCEBACKUP", "instance", name, text, is_error=False)
