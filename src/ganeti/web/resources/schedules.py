"""Schedules of backups; the opcodes declare how they are changed."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation, read

SCHEDULES = Listed("QuerySchedules", fields.SCHEDULE, "/2/backup-schedules", id_field="name")

OPERATIONS: tuple[Operation, ...] = (
    read("/2/backup-schedules", "backup-schedules", "List all schedules of backups", SCHEDULES.collection(), BULK,
         LOCK, *PAGES, result="list", shows="schedule"),
    read("/2/backup-schedules/{schedule}", "backup-schedules_name", "Return one schedule of backups",
         SCHEDULES.one(), LOCK, shows="schedule"),
)  # fmt: skip
