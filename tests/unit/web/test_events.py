"""Server-sent events: nothing twice, nothing missed, whoever hangs up and comes back."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ganeti.daemons.rapi import WITHOUT_MASTER_S
from ganeti.model import wire
from ganeti.model.job import remote_source
from ganeti.model.names import JobStatus
from ganeti.store.interface import Put
from ganeti.web import events
from ganeti.web.events import EventHub
from tests.support.rest import GUEST, TENANT, EventReader, RestRig, request
from tests.unit.query.cluster import job as made

pytestmark = pytest.mark.requirement("S192")


class Subscriber:
    """Reads a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.last: str | None = None

    async def next(self) -> tuple[str, Any]:
        """Kind and content of the next event."""
        while True:
            async with asyncio.timeout(10):
                block = (await self._reader.readuntil(b"\n\n")).decode()
            fields = dict(
                line.split(": ", 1)
                for line in block.splitlines()
                if ": " in line and not line.startswith(":")
            )
            if "event" in fields:
                self.last = fields.get("id", self.last)
                return fields["event"], json.loads(fields["data"])

    async def ids(self, count: int) -> list[int]:
        return [(await self.next())[1]["id"] for _ in range(count)]


@asynccontextmanager
async def subscribed(
    rig: RestRig, last: str | None = None, query: str = "", user: str = "admin"
) -> AsyncIterator[Subscriber]:
    reader, writer = await rig.connect()
    headers = {} if last is None else {"Last-Event-ID": last}
    writer.write(request("GET", f"/2/events{query}", b"", user, headers))
    await reader.readuntil(b": welcome\n\n")
    try:
        yield Subscriber(reader, writer)
    finally:
        writer.transport.abort()


def job(rig: RestRig, number: int, user: str = "admin") -> None:
    rig.master.history.job_happens(made(number, source=remote_source(user)))


async def ready(rig: RestRig) -> None:
    async with asyncio.timeout(5):
        while rig.hub._last is None:  # noqa: ASYNC110 - it follows the master in a task of its own
            await asyncio.sleep(0.01)


async def test_a_subscriber_that_is_cut_off_again_and_again_gets_each_event_once(
    rig: RestRig,
) -> None:
    await ready(rig)
    chance = random.Random(7)
    last, found, told = rig.hub._last, list[int](), 0
    while len(found) < 60:
        for _ in range(chance.randrange(4)):
            told += 1
            job(rig, told)
        async with subscribed(rig, last) as one:
            for _ in range(chance.randrange(3)):
                told += 1
                job(rig, told)
            found += await one.ids(chance.randrange(told - len(found) + 1))
            last = one.last or last
    assert found == list(range(1, len(found) + 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_disconnected_subscriber_misses_no_event_across_masters(
    rig: RestRig, seed: int, *, is_known: bool
) -> None:
    await ready(rig)
    chance, truth = random.Random(seed), dict[int, str]()
    reader = EventReader(str(rig.hub._last))
    written, told = list[tuple[int, str]](), list[tuple[int, str]]()
    resets = 0

    def happens(number: int | None = None) -> None:
        number = number or chance.randrange(1, 8)
        truth[number] = chance.choice(["queued", "running", "success"])
        written.append((number, truth[number]))
        live = [one for one in rig.master.queue.live if one.id != number]
        rig.master.queue.live[:] = [*live, _job(number, JobStatus(truth[number]))]
        rig.master.history.job_happens(_job(number, JobStatus(truth[number])))

    async def listen(events: int | None) -> None:
        nonlocal resets
        async with subscribed(rig, reader.last) as one:
            while events is None or events > 0:
                kind, content = await one.next()
                reader.take(kind, content, one.last)
                resets += kind == "reset"
                if kind == "job":
                    told.append((content["id"], content["status"]))
                events = events - 1 if events is not None else None
                if events is None and reader.jobs == truth:
                    return

    for _ in range(25):
        for _ in range(chance.randrange(4)):
            happens()
        if chance.random() < 0.3:
            _change_master(rig, is_known=is_known)
            happens()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await listen(chance.randrange(12))
        reader.cut_off()
    happens(99)
    async with asyncio.timeout(20):
        await listen(None)
    assert reader.jobs == truth
    if is_known:
        assert resets == 0
        assert told == written


def _change_master(rig: RestRig, *, is_known: bool = True) -> None:
    """The next master has the same log, or has got everything anew."""
    rig.master.history.epoch += 1
    if not is_known:
        rig.master.history.disk.log.clear()


async def test_what_the_server_has_forgotten_the_master_knows(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(rig)
    first = rig.hub._last
    monkeypatch.setattr(events, "KEPT", 3)
    for number in range(1, 21):
        job(rig, number)
        await asyncio.sleep(0)
    async with subscribed(rig, first) as one:
        assert await one.ids(20) == list(range(1, 21))
        job(rig, 21)
        assert await one.ids(1) == [21]


async def test_forgotten_events_cause_a_reset(rig: RestRig) -> None:
    rig.master.queue.live.append(_job())
    job(rig, 6)
    async with subscribed(rig, "2-77") as one:
        kind, content = await one.next()
        assert (kind, one.last) == ("reset", None)
        assert "why" in content
        state = [await one.next() for _ in range(4 + 3 + 2 + 1)]
        assert one.last is None
        assert await one.next() == ("complete", {})
        assert str(one.last) == "3-1"
        assert [kind for kind, _ in state].count("instance") == 4
        assert state[-1] == ("job", {"id": 7, "status": "success", "summary": ["TEST_DELAY(0.5)"],
                                     "source": "local", "dry_run": False})  # fmt: skip
        job(rig, 8)
        assert await one.ids(1) == [8]
        assert one.last == "3-1-1"


def _job(number: int = 7, status: JobStatus = JobStatus.SUCCESS) -> Any:
    return made(number, status)


async def test_events_are_filtered_by_kind_and_scope(rig: RestRig) -> None:
    await ready(rig)
    last = str(rig.hub._last)
    job(rig, 1)
    job(rig, 2, TENANT)
    for name, tags in (("web2.example.com", []), ("web1.example.com", ["a"])):
        instance = {"uuid": name, "name": name, "tags": tags, "serial_no": 2}
        rig.master.history.happens(Put("instance", name, wire.encode(instance)))
    rig.master.history.happens(Put("node", "u1", wire.encode({"uuid": "u1", "name": "node1"})))
    async with subscribed(rig, last, "?kinds=node") as one:
        assert (await one.next())[1]["name"] == "node1"
    async with subscribed(rig, last, user=TENANT) as one:
        assert (await one.next())[1]["id"] == 2
        assert (await one.next())[1]["name"] == "web1.example.com"


async def test_what_is_no_number_and_no_kind_is_refused(rig: RestRig) -> None:
    assert (await rig.ask("GET", "/2/events?kinds=chair")).status == 400
    assert (await rig.ask("GET", "/2/events", headers={"Last-Event-ID": "x"})).status == 400
    assert (await rig.ask("GET", "/2/events", user=GUEST)).status == 403


async def test_many_listen_to_one_request_at_the_master(rig: RestRig) -> None:
    await ready(rig)
    calls = rig.services.master.calls
    streams = [subscribed(rig) for _ in range(10)]
    subscribers = [await stream.__aenter__() for stream in streams]
    job(rig, 1)
    assert [await one.ids(1) for one in subscribers] == [[1]] * 10
    assert rig.hub.subscribers == 10
    assert rig.services.master.calls - calls <= 3
    for stream in streams:
        await stream.__aexit__(None, None, None)
    async with asyncio.timeout(5):
        while rig.hub.subscribers:  # noqa: ASYNC110 - connections end one by one
            await asyncio.sleep(0.01)


async def test_hub_reports_the_silence_of_the_master(rig: RestRig) -> None:
    await ready(rig)
    assert rig.hub.silent_s() < 5
    assert isinstance(rig.hub, EventHub)


async def test_a_master_where_nothing_happens_is_not_silent(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * events.POLL_S < WITHOUT_MASTER_S
    monkeypatch.setattr(events, "POLL_S", 0.05)
    await ready(rig)
    job(rig, 1)
    async with asyncio.timeout(20):
        for _ in range(3):
            heard = rig.hub._heard
            while rig.hub._heard == heard:  # noqa: ASYNC110 - it follows the master in a task of its own
                await asyncio.sleep(0.01)
