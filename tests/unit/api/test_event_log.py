import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ganeti.api.event_log import GATHER_S, EventLog
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance
from tests.unit.query.cluster import snapshot

pytestmark = pytest.mark.virtual_time


def changed(old: Snapshot, **given: Any) -> Snapshot:
    """With one instance other than it was."""
    uuid, one = next(iter(old.instances.items()))
    table = {**old.instances, uuid: msgspec.structs.replace(one, **given)}
    return replace(old, position=old.position + 1, tables={**old.tables, Instance: table})


async def test_events_are_numbered_and_each_is_told_once() -> None:
    log = EventLog(5)
    for number in range(1, 4):
        log.note("job", {"id": number})
    assert log.after(None) == {"last": "5-3", "is_lost": False, "events": []}
    found = log.after("5-1")
    assert found["events"] == [["5-2", "job", {"id": 2}], ["5-3", "job", {"id": 3}]]
    assert found["last"] == "5-3"
    assert log.after("5-0")["events"][0][0] == "5-1"
    assert log.after("5-3")["events"] == []


@pytest.mark.parametrize("number", ["4-3", "6-0", "5-4", "5-1", "x", "5-", "-1"])
async def test_what_is_not_known_any_more_is_said_to_be_lost(number: str) -> None:
    log = EventLog(5, limit=1)
    for job in range(3):
        log.note("job", {"id": job})
    assert log.after(number) == {"last": "5-3", "is_lost": True, "events": []}


async def test_who_waits_is_woken_by_the_next_event() -> None:
    log = EventLog(1)
    waiting = asyncio.create_task(log.wait("1-0", 40))
    await asyncio.sleep(3)
    assert not waiting.done()
    log.note("job", {"id": 1})
    assert [one[0] for one in (await waiting)["events"]] == ["1-1"]
    begun = asyncio.get_running_loop().time()
    assert (await log.wait("1-1", 40))["events"] == []
    assert asyncio.get_running_loop().time() - begun == 40


async def test_changes_of_the_configuration_are_events() -> None:
    log, before = EventLog(1), snapshot()
    listeners: list[Callable[[Snapshot], None]] = []

    def subscribe(listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        listeners.append(listener)
        return listeners.clear

    log.follow(before, subscribe)
    after = changed(before, tags=("b",))
    fewer = list(after.instances.items())[:-1]
    tables: dict[Any, Any] = {**after.tables, Instance: dict(fewer)}
    cluster = msgspec.structs.replace(after.cluster, tags=("other",))
    listeners[0](after)
    listeners[0](replace(after, tables=tables, cluster=cluster))
    assert log.after("1-0")["events"] == []
    await asyncio.sleep(GATHER_S * 2)
    found = [(kind, one["name"], one["change"]) for _, kind, one in log.after("1-0")["events"]]
    assert found == [
        ("cluster", "cluster.example.com", "changed"),
        ("instance", "web1.example.com", "changed"),
        ("instance", "web4.example.com", "removed"),
    ]
    assert log.after("1-0")["events"][1][2]["tags"] == ["b"]
    await log.close()
    assert listeners == []
