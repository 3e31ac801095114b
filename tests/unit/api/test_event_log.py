import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ganeti.api.event_log import GATHER_S, EventLog
from ganeti.base.ids import RandomIds
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft, put_row
from ganeti.jobs.record import LOG_KIND, LiveJob
from ganeti.jobs.states import Event
from ganeti.model.backup_schedule import BackupRun
from ganeti.model.job import OpState, StoredJob
from ganeti.model.names import JobStatus
from ganeti.model.objects import InstanceUuid, Network, NetworkUuid
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.progress import JobProgress
from ganeti.simulation.faulty_store import FaultyStore
from ganeti.store.backend import become_master
from ganeti.store.interface import Delete, Put, Transaction
from tests.support.predictable import FrozenClock
from tests.support.state_history import StateHistory, job_row
from tests.unit.query.cluster import job, snapshot

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S192")]


def numbers(answer: dict[str, Any]) -> list[str]:
    return [one[0] for one in answer["events"]]


async def test_events_are_numbered_and_sent_once() -> None:
    history = StateHistory(5)
    log = history.events
    history.happens(job_row(job(1)), job_row(job(2)))
    history.happens(Put(LOG_KIND, "1/1", b"{}"))
    history.job_happens(job(3))
    assert await log.after(None) == {"last": "5-3", "is_lost": False, "events": [], "passing": 0}
    found = await log.after("0-0")
    assert numbers(found) == ["0-0-1", "0-0-2", "5-2-1"]
    assert [one[2]["id"] for one in found["events"]] == [1, 2, 3]
    assert found["last"] == "5-3"
    assert numbers(await log.after("0-0-1")) == ["0-0-2", "5-2-1"]
    assert numbers(await log.after("0-0-2")) == ["5-2-1"]
    assert (await log.after("5-2-1"))["events"] == []
    assert await log.after("5-3") == {"last": "5-3", "is_lost": False, "events": [], "passing": 0}


async def test_next_master_sends_the_same_events() -> None:
    history = StateHistory(5)
    for one in range(30):
        history.job_happens(job(one))
    before, number = list[Any](), "0-0"
    while (answer := await history.events.after(number))["events"]:
        before, number = before + answer["events"], answer["last"]
    history.epoch = 9
    history.job_happens(job(30))
    after, number = list[Any](), before[4][0]
    while (answer := await EventLog(history).after(number))["events"]:
        after, number = after + answer["events"], answer["last"]
    assert after[:-1] == before[5:]
    assert after[-1][0] == "5-30-1"


@pytest.mark.parametrize("number", ["4-3", "6-0", "5-4", "5-0", "x", "5-", "-1", "5-1-"])
async def test_unknown_events_are_reported_as_lost(number: str) -> None:
    history = StateHistory(5)
    for one in range(3):
        history.job_happens(job(one))
    del history.disk.log[0]
    found = await history.events.after(number)
    assert found == {"last": "5-3", "is_lost": True, "events": [], "passing": 0}


async def test_next_event_wakes_waiting_clients() -> None:
    history = StateHistory(1)
    waiting = asyncio.create_task(history.events.wait("0-0", 40))
    await asyncio.sleep(3)
    assert not waiting.done()
    history.happens(Put(LOG_KIND, "1/1", b"{}"))
    await asyncio.sleep(3)
    assert not waiting.done()
    history.job_happens(job(1))
    assert numbers(await waiting) == ["1-1-1"]
    begun = asyncio.get_running_loop().time()
    assert (await history.events.wait("1-2", 40))["events"] == []
    assert asyncio.get_running_loop().time() - begun == 40


async def test_what_is_still_being_written_is_waited_for() -> None:
    history = StateHistory(1)
    waiting = asyncio.create_task(history.events.wait("0-0", 40))
    history.waiting_bytes = 10
    history.events.stir()
    await asyncio.sleep(1)
    assert not waiting.done()
    history.disk.write(1, Transaction((job_row(job(1)),)))
    history.waiting_bytes = 0
    await asyncio.sleep(2 * GATHER_S)
    assert waiting.done()
    assert numbers(await waiting) == ["0-0-1"]


async def test_job_waiting_for_locks_is_sent_without_a_number() -> None:
    history = StateHistory(1)
    ops = (OpState(op=OpTestDelay(duration=1.0)),)
    stored = StoredJob(id=4, ops=ops, received=1.0)
    live = LiveJob(stored)
    history.happens(job_row(job(4, JobStatus.QUEUED)))
    live.tell(Event.START)
    history.events.job_changed(live)
    answer = await history.events.after("0-0", 0)
    assert [(one[0], one[2]["status"]) for one in answer["events"]] == [
        ("0-0-1", "queued"),
        (None, "waiting"),
    ]
    assert answer["passing"] == 1
    assert (await history.events.after("1-1", answer["passing"]))["events"] == []
    assert len((await history.events.after("0-0"))["events"]) == 1
    live.tell(Event.GO)
    assert (await history.events.after("1-1", 0))["events"] == []


async def test_progress_of_a_running_job_is_sent_once_with_its_last_values() -> None:
    history = StateHistory(1)
    stored = StoredJob(id=4, ops=(OpState(op=OpTestDelay(duration=1.0)),), received=1.0)
    live = LiveJob(stored)
    history.happens(job_row(job(4, JobStatus.RUNNING)))
    for event in (Event.START, Event.GO):
        live.tell(event)
    for percent in (10.0, 20.0):
        live.progress = JobProgress("disk 0", percent, 1.0, None)
        history.events.job_changed(live)
    answer = await history.events.after("1-1", 0)
    [[number, kind, content]] = answer["events"]
    assert (number, kind, content["status"]) == (None, "job", "running")
    assert content["progress"]["percent"] == 20.0
    live.progress = None
    assert (await history.events.after("1-1", 0))["events"] == []


async def test_states_of_scheduled_backups_are_events() -> None:
    history = StateHistory(1)
    run = BackupRun(
        uuid="5b8b4f3c-6a43-4d3e-9c93-bbbbbbbbbbbb",
        name="nightly web1.example.com",
        schedule="5b8b4f3c-6a43-4d3e-9c93-cccccccccccc",
        instance=InstanceUuid("5b8b4f3c-6a43-4d3e-9c93-dddddddddddd"),
        since=1.0,
        times="daily UTC",
        due=2.0,
        decided=1.0,
        job=7,
        failures=1,
        error="no space",
    )
    history.happens(put_row(run))
    history.happens(put_row(run), Delete("backup-run", run.uuid))
    [[_number, kind, content]] = (await history.events.after("0-0"))["events"]
    assert kind == "backup"
    assert (content["name"], content["state"], content["job"], content["error"]) == (
        "nightly web1.example.com", "failing", 7, "no space"
    )  # fmt: skip


async def test_changes_of_the_configuration_are_events() -> None:
    store, before = FaultyStore(), snapshot()
    lease = await become_master(store)
    config = Config(store, lease, FrozenClock(), RandomIds(), before)
    log = EventLog(store)
    listeners: list[Callable[[Snapshot], None]] = []

    def subscribe(listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        listeners.append(listener)
        return listeners.clear

    log.follow(subscribe)
    start, *_, web4 = await log.last(), *before.instances.values()
    group = next(iter(before.groups.values()))
    waiting = asyncio.create_task(log.wait(start, 20))
    await config.change(lambda draft: draft.put(msgspec.structs.replace(group, tags=("b",))))
    cluster = msgspec.structs.replace(before.cluster, tags=("other",))

    def more(draft: Draft) -> None:
        draft.put(cluster)
        draft.put(
            Network(
                uuid=NetworkUuid("5b8b4f3c-6a43-4d3e-9c93-aaaaaaaaaaaa"),
                name="lan",
                network="192.0.2.0/24",
            )
        )
        draft.remove(web4)

    await config.change(more)
    assert not waiting.done()
    listeners[0](config.snapshot)
    found = (await waiting)["events"]
    assert [(kind, one["name"], one["change"]) for _, kind, one in found] == [
        ("group", group.name, "changed"),
        ("cluster", "cluster.example.com", "changed"),
        ("network", "lan", "added"),
        ("instance", "web4.example.com", "removed"),
    ]
    assert found[0][2]["tags"] == ("b",)
    assert [one[0].rpartition("-")[2] for one in found] == ["1", "1", "2", "3"]
    await log.close()
    assert listeners == []
    await store.close()
