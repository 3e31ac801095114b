"""Schedules of backups: requests, and the jobs that the master begins for them, through its deaths."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HostError
from ganeti.daemons.backup_schedules import SOURCE, BackupScheduler, fact_of
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.backup_schedules import (
    OpBackupScheduleAdd,
    OpBackupScheduleRemove,
    OpBackupScheduleRun,
    OpBackupScheduleSetParams,
)
from ganeti.model.opcodes.group import OpGroupAdd, OpGroupRemove
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.instance_system import OpInstanceRename
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.model.opcodes.points import OpBackupPrune, OpBackupSave
from ganeti.rpc.procedures.backups import PrunePoints
from ganeti.rpc.procedures.drills import DrillArgs, DrillResult
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.virtual_time import LoopClock
from ganeti.units.backup import schedules
from ganeti.units.cluster.backup_findings import backup_findings
from tests.support.backup_nodes import Stored, backup_node, backup_world
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G7", "F28")]

HOUR_S = 3600
TARGET = "/srv/ganeti/backup"
OTHER = "web2.example.com"


class Audit:
    def __init__(self) -> None:
        self.records: list[tuple[str, str, str, int]] = []

    def scheduled(self, schedule: BackupSchedule, instance: str, job_id: int) -> None:
        self.records.append((schedule.owner, schedule.name, instance, job_id))


@pytest.fixture
def world() -> World:
    return backup_world("plain", "file", "diskless")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


@asynccontextmanager
async def scheduling(master: Master, audit: Audit | None = None) -> AsyncIterator[BackupScheduler]:
    one = BackupScheduler(
        master.config, master.queue, clock=LoopClock(), ids=master.world.ids, audit=audit or Audit()
    )
    one.start()
    try:
        yield one
    finally:
        await one.close()


def add(**fields: Any) -> OpBackupScheduleAdd:
    values = {
        "schedule_name": "s",
        "calendar": "hourly",
        "all_instances": True,
        "node": "node2.example.com",
    }
    return OpBackupScheduleAdd(**{**values, **fields})


def modify(**fields: Any) -> OpBackupScheduleSetParams:
    return OpBackupScheduleSetParams(schedule_name="s", **fields)


async def with_instance(master: Master, name: str = NAME, **fields: Any) -> None:
    op = create(name, **{"disk_template": "plain", "start": False, **fields})
    succeeded(await master.run(op))


def schedule_of(master: Master) -> BackupSchedule:
    (found,) = master.snapshot.table(BackupSchedule).values()
    return found


def run_of(master: Master) -> BackupRun:
    (found,) = master.snapshot.table(BackupRun).values()
    return found


def points(world: World, number: int = 2, name: str = NAME, target: str = TARGET) -> list[Stored]:
    return backup_node(world, number).points.get((target, name), [])


def saves(master: Master) -> Iterator[OpBackupSave]:
    for job_id in master.queue.ids():
        view = master.queue.view(job_id)
        assert view is not None
        if isinstance(op := view.ops[0].op, OpBackupSave):
            yield op


def failed_saves(master: Master) -> int:
    views = [view for job_id in master.queue.ids() if (view := master.queue.view(job_id))]
    return sum(
        view.status is JobStatus.ERROR and isinstance(view.ops[0].op, OpBackupSave)
        for view in views
    )


# Requests


@pytest.mark.parametrize(("op", "field", "why"), [
    (add(schedule_name="a b"), "schedule_name", "not a name"),
    (add(calendar=None), "calendar", "--calendar=daily"),
    (add(calendar="whenever"), "calendar", "not a calendar expression"),
    (add(calendar="*:*"), "calendar", "more than once in 10 minutes"),
    (add(time_zone="Mars/Olympus"), "time_zone", "not a time zone"),
    (add(all_instances=None), "instances", "choose what is saved"),
    (add(instances=["x.example.com"]), None, "there is no instance x.example.com"),
    (add(groups=["x"]), None, "there is no group x"),
    (add(node="x.example.com"), None, "there is no node x.example.com"),
    (add(instance_tags=["a b"]), "tags", ""),
    (add(target="backup"), "target", "absolute path"),
    (add(window="22-6"), "window", "not a window"),
    (add(at_once=0), "at_once", "from 1"),
    (add(per_node=0), "per_node", "from 1"),
    (add(keep_daily=-1), "keep_daily", "from 0"),
    (add(bandwidth=-1), "bandwidth", "from 0"),
    (add(drill="sometimes"), "drill", "not a calendar expression"),
    (add(drill_expect="a\nb"), "drill_expect", "one line"),
    (add(alert_after=-1), "alert_after", "from 0"),
    (modify(calendar="daily"), None, "there is no schedule 's'"),
    (OpBackupScheduleRemove(schedule_name="s"), None, "there is no schedule 's'"),
    (OpBackupScheduleRun(schedule_name="s"), None, "gnt-backup schedule list"),
])  # fmt: skip
async def test_wrong_request_is_refused(
    master: Master, op: OpCode, field: str | None, why: str
) -> None:
    _name, (text, _code) = failed(await master.run(op))
    assert why in text
    assert field is None or text.startswith(f"{field}: ")
    assert not master.snapshot.table(BackupSchedule)


async def test_schedule_is_changed_paused_and_removed(master: Master) -> None:
    await with_instance(master)
    succeeded(await master.run(add(window="22:00-06:00", keep_daily=7)))
    made = schedule_of(master)
    assert (made.serial_no, made.owner, made.keep_daily) == (1, "local", 7)
    assert made.node == master.node(2).uuid
    _name, (text, _code) = failed(await master.run(modify()))
    assert "nothing to change" in text
    succeeded(await master.run(modify(
        window="none", node="none", instances=["web1"], all_instances=False, is_paused=True
    )))  # fmt: skip
    changed = schedule_of(master)
    assert (changed.window, changed.node, changed.instances) == ("", None, (NAME,))
    assert changed.is_paused
    _name, (text, _code) = failed(await master.run(modify(instances=[])))
    assert "choose what is saved" in text
    _name, (text, _code) = failed(await master.run(add()))
    assert "already used" in text
    succeeded(await master.run(OpBackupScheduleRemove(schedule_name="s")))
    assert not master.snapshot.table(BackupSchedule)


async def test_renamed_instance_stays_in_its_schedule(master: Master) -> None:
    await with_instance(master)
    succeeded(await master.run(add(all_instances=None, instances=[NAME])))
    rename = OpInstanceRename(instance_name=NAME, new_name=OTHER, name_check=False, ip_check=False)
    succeeded(await master.run(rename))
    assert schedule_of(master).instances == (OTHER,)


async def test_objects_of_a_schedule_are_not_removed(master: Master) -> None:
    succeeded(await master.run(OpGroupAdd(group_name="blue")))
    succeeded(await master.run(add(groups=["blue"], all_instances=None)))
    _name, (text, _code) = failed(await master.run(OpGroupRemove(group_name="blue")))
    assert "gnt-backup schedule modify s --groups=" in text
    _name, (text, _code) = failed(await master.run(OpNodeRemove(node_name="node2.example.com")))
    assert "gnt-backup schedule modify s --node=NODE" in text


# The master's jobs


async def test_jobs_begin_when_they_are_due_and_prune_afterwards(
    master: Master, world: World
) -> None:
    await with_instance(master)
    audit = Audit()
    assert "must be one of: yes, no, default" in str(failed(await master.run(add(encrypt="x"))))
    succeeded(await master.run(add(keep_last=2, bandwidth=50, encrypt="no")))
    async with scheduling(master, audit):
        await asyncio.sleep(5 * HOUR_S)
    assert len(points(world)) == 2
    run = run_of(master)
    assert (run.failures, run.point, run.attempt) == (0, points(world)[-1].info.point, 5)
    view = master.queue.view(run.job)
    assert view is not None
    save, prune = (state.op for state in view.ops)
    assert isinstance(save, OpBackupSave)
    assert isinstance(prune, OpBackupPrune)
    assert save.encrypt is False
    assert save.schedule == prune.schedule != ""
    assert (save.bandwidth, prune.keep_last, save.priority) == (50, 2, 10)
    assert save.reason[-1][:2] == (SOURCE, "schedule s of local")
    assert len(audit.records) == 5
    assert audit.records[-1] == ("local", "s", NAME, run.job)


async def test_backups_are_on_the_instances_own_node_without_another(
    master: Master, world: World
) -> None:
    await with_instance(master)
    succeeded(await master.run(add(node=None, target="/mnt/nas")))
    async with scheduling(master):
        await asyncio.sleep(HOUR_S)
    assert len(points(world, 1, target="/mnt/nas")) == 1


async def test_requested_backups_begin_at_once_and_only_of_covered_instances(
    master: Master, world: World
) -> None:
    await with_instance(master)
    await with_instance(master, OTHER)
    succeeded(await master.run(add(calendar="yearly", is_paused=True)))
    asked = OpBackupScheduleRun(schedule_name="s", instances=["web1"])
    assert succeeded(await master.run(replace(asked, dry_run=True))) == [NAME]
    assert succeeded(await master.run(asked)) == [NAME]
    async with scheduling(master):
        await asyncio.sleep(60)
        assert (len(points(world)), len(points(world, name=OTHER))) == (1, 0)
        assert succeeded(await master.run(replace(asked, instances=None))) == [NAME, OTHER]
        await asyncio.sleep(60)
    assert (len(points(world)), len(points(world, name=OTHER))) == (2, 1)
    succeeded(await master.run(modify(all_instances=False, instances=[OTHER])))
    _name, (text, _code) = failed(await master.run(asked))
    assert "does not cover" in text


@pytest.mark.parametrize("number", range(3))
async def test_request_for_more_instances_than_fit_into_one_change_reaches_all(
    master: Master, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(schedules, "REQUESTS_AT_ONCE", 1)
    names = [NAME, OTHER, "web3.example.com"]
    for name in names:
        await with_instance(master, name)
    succeeded(await master.run(add(calendar="yearly", is_paused=True)))
    job_id = await master.submit(OpBackupScheduleRun(schedule_name="s"))
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    assert succeeded(await master.run(OpBackupScheduleRun(schedule_name="s"))) == names
    runs = master.snapshot.table(BackupRun).values()
    assert [one.is_requested for one in runs] == [True] * len(names)


async def test_failed_backup_is_repeated_and_reported_by_verify(
    master: Master, world: World
) -> None:
    await with_instance(master)
    backup_node(world, 2).space = 0
    succeeded(await master.run(add(calendar="00:00")))
    async with scheduling(master):
        await asyncio.sleep(3.5 * 24 * HOUR_S)
        run = run_of(master)
        assert "MiB free" in run.error
        assert run.failures == run.all_failures == len(list(saves(master)))
        assert run.is_old
        (finding,) = backup_findings(master.snapshot, LoopClock().time())
        assert finding.code == "EINSTANCEBACKUP"
        assert finding.text.startswith(
            f"no good backup for 3 days (schedule s, last error of job {run.job}: "
        )
        assert "gnt-backup schedule run s" in finding.text
        backup_node(world, 2).space = 100_000
        succeeded(await master.run(OpBackupScheduleRun(schedule_name="s")))
        await asyncio.sleep(60)
    run = run_of(master)
    assert (run.failures, run.error, run.is_old, len(points(world))) == (0, "", False, 1)
    assert not list(backup_findings(master.snapshot, LoopClock().time()))


async def test_verify_reports_a_name_without_an_instance(master: Master) -> None:
    await with_instance(master)
    succeeded(await master.run(add(all_instances=None, instances=[NAME])))
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    (finding,) = backup_findings(master.snapshot, LoopClock().time())
    assert (finding.name, finding.is_error) == (NAME, False)


async def test_drained_queue_counts_as_a_failure_and_is_tried_again(
    master: Master, world: World
) -> None:
    await with_instance(master)
    succeeded(await master.run(add()))
    await master.queue.set_drained(True)
    async with scheduling(master):
        await asyncio.sleep(HOUR_S)
        assert "drain" in run_of(master).error
        await master.queue.set_drained(False)
        await asyncio.sleep(HOUR_S)
    assert len(points(world)) == 1


@pytest.mark.parametrize("number", range(8))
async def test_refused_commit_only_delays_a_backup(
    master: Master, world: World, number: int
) -> None:
    await with_instance(master)
    succeeded(await master.run(add()))
    async with scheduling(master):
        await asyncio.sleep(5)
        master.store.inject(Refuse(), after=number)
        await asyncio.sleep(1.8 * HOUR_S)
    await master.idle()
    assert len(points(world)) >= 1
    assert not run_of(master).is_live or run_of(master).job


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(12))
async def test_master_that_dies_makes_each_backup_once(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await with_instance(master)
    succeeded(await master.run(add(calendar="*:00")))
    async with scheduling(master):
        await asyncio.sleep(5)
        master.store.inject(Crash(written=written), after=number)
        await asyncio.sleep(0.8 * HOUR_S)
    has_died = await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        async with scheduling(after):
            await asyncio.sleep(0.3 * HOUR_S)
            run = run_of(after)
            assert not run.is_live
            # A job that the dead master left running has failed, even if its backup exists; it is repeated once.
            assert len(points(world)) in ((1, 2) if has_died else (1,))
            assert run.point == points(world)[-1].info.point
            assert run.failures == 0
            assert len(list(saves(after))) - failed_saves(after) == 1
    finally:
        await after.end()


async def test_job_is_followed_from_the_archive(master: Master, world: World) -> None:
    await with_instance(master)
    succeeded(await master.run(add()))
    async with scheduling(master):
        await asyncio.sleep(HOUR_S - 60)
    (job_id,) = [one for one in master.queue.ids() if isinstance_save(master, one)]
    await master.final(job_id)
    run = run_of(master)
    await master.change(lambda draft: draft.put(replace(run, began=1.0, last_good=0.0, job=job_id)))
    assert await master.queue.archive(job_id)
    async with scheduling(master):
        await asyncio.sleep(30)
    assert run_of(master).last_good > 0
    assert not run_of(master).is_live


def isinstance_save(master: Master, job_id: int) -> bool:
    view = master.queue.view(job_id)
    return view is not None and isinstance(view.ops[0].op, OpBackupSave)


async def test_failed_prune_leaves_a_good_backup_and_an_error(master: Master, world: World) -> None:
    await with_instance(master)
    succeeded(await master.run(add(keep_last=1)))

    def broken(args: PrunePoints) -> Nothing:
        raise HostError(f"read-only file system: {args.target}")

    backup_node(world, 2).on_backup_prune = broken  # type: ignore[method-assign]  # this node cannot remove
    async with scheduling(master):
        await asyncio.sleep(2.5 * HOUR_S)
    run = run_of(master)
    assert run.last_good > 0
    assert run.failures == 0
    assert run.all_failures >= 1
    assert run.error.startswith("the backup is good, but older ones are not removed: ")
    view = master.queue.view(run.job)
    assert view is not None
    assert fact_of(view).point == run.point


async def test_due_drill_decides_whether_a_backup_is_good(master: Master, world: World) -> None:
    await with_instance(master)
    node, boots = backup_node(world, 2), [False]
    real = node.on_backup_drill

    def drilled(args: DrillArgs) -> DrillResult:
        return real(args) if boots[0] else DrillResult(problem="300 s passed", lines=[])

    node.on_backup_drill = drilled  # type: ignore[method-assign]  # its guests boot when the test says so
    succeeded(await master.run(add(drill="10:30", drill_expect="ready", keep_last=1)))
    async with scheduling(master):
        await asyncio.sleep(HOUR_S)
        first = run_of(master)
        assert (first.failures, first.point) == (0, points(world)[-1].info.point)
        await asyncio.sleep(HOUR_S / 2)
        failing = run_of(master)
        assert failing.failures >= 1
        assert failing.point == first.point
        assert "did not pass" in failing.error
        assert len(points(world)) == 1 + failing.failures, (
            "nothing is removed before a drill succeeds"
        )
        boots[0] = True
        await asyncio.sleep(HOUR_S)
    run = run_of(master)
    assert (run.failures, run.error, run.point) == (0, "", points(world)[-1].info.point)
    assert [one.expect for one in node.drills] == ["ready"]
    # The newest backup that has passed a drill stays although only the last one is to be kept.
    assert len(points(world)) <= 2
