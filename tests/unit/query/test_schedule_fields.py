"""Fields of schedules, and those of instances about their backups."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.objects import InstanceUuid
from ganeti.query.context import QueryContext
from ganeti.query.execute import KINDS
from tests.support.predictable import FrozenClock
from tests.unit.query.cluster import INSTANCE_UUIDS, snapshot


@pytest.fixture
def with_schedule() -> Snapshot:
    draft = Draft(snapshot(), FrozenClock())
    group = next(iter(draft.groups.values()))
    nightly = BackupSchedule(
        uuid="5b8b4f3c-6a43-4d3e-9c93-cccccccccccc",
        name="nightly",
        calendar="02:00",
        groups=(group.uuid,),
        keep_daily=7,
        keep_weekly=4,
        owner="local",
    )
    draft.put(nightly)
    run = BackupRun(
        uuid="5b8b4f3c-6a43-4d3e-9c93-dddddddddddd",
        name="nightly web1",
        schedule=nightly.uuid,
        instance=InstanceUuid(INSTANCE_UUIDS[0]),
        since=1.0,
        times=nightly.times,
        due=99.0,
        decided=1.0,
        last_good=50.0,
        point="p",
    )
    draft.put(run)
    other = replace(
        run, uuid="5b8b4f3c-6a43-4d3e-9c93-eeeeeeeeeeee", instance=InstanceUuid(INSTANCE_UUIDS[1])
    )
    draft.put(
        replace(other, last_good=0.0, point="", error="no space", failures=2, is_old=True, job=7)
    )
    return draft.finish()[0]


def values(view: Snapshot, kind: str, *fields: str) -> list[list[Any]]:
    found, context = KINDS[kind], QueryContext(view)
    return [[found.fields[name].value(row) for name in fields] for row in found.rows(context)]


def test_schedule_shows_its_rules_and_the_state_of_its_instances(with_schedule: Snapshot) -> None:
    fields = ("name", "next", "instance_count", "keep", "failing", "old", "running", "owner")
    assert values(with_schedule, "schedule", *fields) == [
        ["nightly", 99.0, 2, "daily=7 weekly=4", 0, 1, 0, "local"]
    ]
    [[groups, rules, runs]] = values(with_schedule, "schedule", "groups", "keep_rules", "runs")
    assert len(groups) == 1
    assert rules["daily"] == 7
    assert [(one["state"], one["backup"], one["job"], one["error"]) for one in runs] == [
        ("good", "p", None, None),
        ("old", None, 7, "no space"),
    ]


def test_instance_shows_its_last_backup_and_the_worst_state(with_schedule: Snapshot) -> None:
    found = {
        name: (last, state)
        for name, last, state in values(
            with_schedule, "instance", "name", "backup_last", "backup_state"
        )
    }
    names = [with_schedule.instances[uuid].name for uuid in INSTANCE_UUIDS[:3]]
    assert found[names[0]] == (50.0, "good")
    assert found[names[1]][1] == "old"
    assert found[names[1]][0] == found[names[2]][0] == found[names[2]][1]


def test_removed_schedule_says_nothing_of_instances(with_schedule: Snapshot) -> None:
    """What the master remembers of it goes later."""
    draft = Draft(with_schedule, FrozenClock())
    for schedule in list(draft.table(BackupSchedule).values()):
        draft.remove(schedule)
    removed = draft.finish()[0]
    assert removed.table(BackupRun)
    none = {value for _name, value in values(removed, "instance", "name", "backup_state")}
    assert none == {dict(values(with_schedule, "instance", "name", "backup_state"))[
        with_schedule.instances[INSTANCE_UUIDS[2]].name
    ]}  # fmt: skip
