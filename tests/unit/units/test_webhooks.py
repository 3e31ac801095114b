"""Webhooks: requests, and what the master sends through failures of receivers and its own deaths."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ganeti.api.event_log import EventLog
from ganeti.config.changes import HIDDEN, ChangedObject
from ganeti.daemons.webhooks import BATCH, GAP, STORE_S, Parts, WebhookSender, batches
from ganeti.model.job import Submitter, remote_source
from ganeti.model.names import JobStatus
from ganeti.model.opcodes.group import OpGroupAdd, OpGroupRemove
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.opcodes.webhooks import (
    OpWebhookAdd,
    OpWebhookRemove,
    OpWebhookSetParams,
    OpWebhookTest,
)
from ganeti.model.webhook import Webhook, WebhookState
from ganeti.protocols.webhook import Happened
from ganeti.query.context import QueryContext
from ganeti.query.execute import KINDS
from ganeti.simulation.faulty_store import Refuse
from ganeti.simulation.virtual_time import LoopClock
from ganeti.units.cluster.webhook_findings import webhook_findings
from ganeti.units.services import Posted
from tests.support.state_history import StateHistory
from tests.support.units_cluster import Master, World, failed, succeeded

pytestmark = [pytest.mark.virtual_time]

SECRET = "0123456789abcdef-secret"
URL = "https://hooks.example.com/ganeti"


class Receiver:
    """Accepts events, unless it has an error; `delivered` has the numbers of accepted events in order."""

    def __init__(self) -> None:
        self.error = ""
        self.fail_after: int | None = None
        self.requests: list[tuple[str, list[Happened]]] = []
        self.accepted: list[Happened] = []
        self.slow_s = 0.0

    async def __call__(
        self, _cluster: str, webhook: Webhook, delivery: str, events: Sequence[Happened], /
    ) -> Posted:
        await asyncio.sleep(self.slow_s)
        self.requests.append((delivery, list(events)))
        if self.error:
            return Posted(0, 0.1, self.error)
        self.accepted += events
        assert webhook.secret
        return Posted(200, 0.1)

    def jobs(self) -> list[tuple[int, str]]:
        return [(one.content["id"], one.content["status"]) for one in self.accepted if one.kind == "job"]  # fmt: skip

    def numbers(self) -> list[tuple[int, ...]]:
        return [tuple(map(int, one.number.split("-"))) for one in self.accepted]


@asynccontextmanager
async def sending(master: Master, post: Receiver) -> AsyncIterator[WebhookSender]:
    history = StateHistory()
    history.disk = master.world.disk
    events = EventLog(history)
    events.follow(master.config.subscribe)
    master.queue.on_change = events.job_changed
    parts = Parts(master.config, events, post, LoopClock())
    sender = WebhookSender(parts, master.world.ids)
    sender.start()
    try:
        await asyncio.sleep(1)
        yield sender
    finally:
        await sender.close()
        await events.close()


def add(**fields: Any) -> OpWebhookAdd:
    return OpWebhookAdd(**{"webhook_name": "w", "url": URL, "secret": SECRET, **fields})


def modify(**fields: Any) -> OpWebhookSetParams:
    return OpWebhookSetParams(webhook_name="w", **fields)


async def delay(master: Master) -> int:
    view = await master.run(OpTestDelay(duration=0.0))
    assert view.status is JobStatus.SUCCESS
    return view.id


def state_of(master: Master) -> WebhookState:
    (found,) = master.snapshot.table(WebhookState).values()
    return found


# Requests


@pytest.mark.parametrize(("op", "field", "why"), [
    (add(webhook_name="a b"), "webhook_name", "not a name"),
    (add(url=None), "url", "name the address"),
    (add(url="ftp://x/"), "url", "must begin with"),
    (add(secret=None), "secret", "needs a secret"),
    (add(secret="short"), "secret", "from 16 to 512"),
    (add(kinds=["jobs"]), "kinds", "the kinds are job"),
    (add(names=[""]), "names", "not a pattern"),
    (add(names=["a"] * 101), "names", "at most 100"),
    (add(object_tags=["a b"]), "tags", ""),
    (add(groups=["x"]), None, "there is no group x"),
    (add(authorities="/etc/ssl/ca.pem"), "authorities", "BEGIN CERTIFICATE"),
    (add(authorities="٣"), "authorities", "BEGIN CERTIFICATE"),
    (add(authorities="x" * 70_000), "authorities", "at most 65536"),
    (modify(kinds=["job"]), None, "there is no webhook 'w'"),
    (OpWebhookRemove(webhook_name="w"), None, "there is no webhook 'w'"),
    (OpWebhookTest(webhook_name="w"), None, "gnt-cluster webhook list"),
])  # fmt: skip
async def test_wrong_request_is_refused(
    master: Master, op: Any, field: str | None, why: str
) -> None:
    text = failed(await master.run(op))
    assert why in str(text)
    assert field is None or field in str(text)
    assert SECRET not in str(text)
    assert not master.snapshot.table(Webhook)


async def test_name_is_unique(master: Master) -> None:
    succeeded(await master.run(add()))
    assert "w" in str(failed(await master.run(add())))


async def test_nothing_to_change_is_refused(master: Master) -> None:
    succeeded(await master.run(add()))
    assert "nothing to change" in str(failed(await master.run(modify())))


async def test_rule_is_changed_and_removed_with_its_memory(master: Master) -> None:
    succeeded(await master.run(add(kinds=["node", "job"])))
    succeeded(await master.run(modify(names=["web*"], kinds=[])))
    (rule,) = master.snapshot.table(Webhook).values()
    assert (rule.kinds, rule.names, rule.secret, rule.owner) == ((), ("web*",), SECRET, "local")
    async with sending(master, Receiver()):
        assert state_of(master).failures == 0
        succeeded(await master.run(OpWebhookRemove(webhook_name="w")))
        await asyncio.sleep(STORE_S * 2)
    assert not master.snapshot.table(Webhook)
    assert not master.snapshot.table(WebhookState)


async def test_named_group_cannot_be_removed(master: Master) -> None:
    succeeded(await master.run(OpGroupAdd(group_name="g")))
    succeeded(await master.run(add(groups=["g"])))
    assert "webhook w names group g" in str(failed(await master.run(OpGroupRemove(group_name="g"))))


@pytest.mark.requirement("G23")
async def test_secret_is_in_no_job_and_no_answer_and_no_record(master: Master) -> None:
    job = await master.run(add())
    succeeded(job)
    other = "fedcba9876543210-secret"
    before = next(iter(master.snapshot.table(Webhook).values()))
    succeeded(await master.run(modify(secret=other)))
    after = next(iter(master.snapshot.table(Webhook).values()))
    assert after.secret == other
    rows = [value for (kind, _key), value in master.world.disk.rows.items() if kind.startswith("job")]  # fmt: skip
    assert rows
    assert not any(SECRET.encode() in one or other.encode() in one for one in rows)
    found, context = KINDS["webhook"], QueryContext(master.snapshot)
    for row in found.rows(context):
        assert other not in str([field.value(row) for field in found.fields.values()])
    assert ChangedObject(before, after).differences() == {"secret": [HIDDEN, HIDDEN]}


async def test_local_addresses_are_allowed_only_on_the_master(master: Master) -> None:
    async def by_rest(op: Any) -> Any:
        job_id = await master.queue.submit([op], submitter=Submitter(remote_source("ann")))
        return await master.final(job_id)

    why = "can be changed only on the master"
    assert why in str(failed(await by_rest(add(allow_local=True))))
    succeeded(await by_rest(add()))
    succeeded(await by_rest(modify(url="https://other.example.com/")))
    succeeded(await master.run(modify(allow_local=True)))
    assert why in str(failed(await by_rest(modify(url="http://127.0.0.1/"))))
    succeeded(await by_rest(modify(is_paused=True)))


async def test_test_shows_the_answer(world: World) -> None:
    master = await Master.begin(world)
    succeeded(await master.run(add()))
    assert "sends no webhooks" in str(failed(await master.run(OpWebhookTest(webhook_name="w"))))
    receiver = world.webhook_post = Receiver()
    master = await master.restart()
    view = await master.run(OpWebhookTest(webhook_name="w"))
    succeeded(view)
    assert view.ops[0].result == {"status": 200, "seconds": 0.1}
    assert [one.kind for one in receiver.accepted] == ["test"]
    receiver.error = "status 500: no"
    refused = await master.run(OpWebhookTest(webhook_name="w"))
    assert "webhook w: status 500: no" in str(failed(refused))
    await master.end()


# Deliveries


async def test_events_are_sent_once_and_in_order(master: Master) -> None:
    await delay(master)
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    async with sending(master, receiver) as sender:
        ids = [await delay(master) for _ in range(30)]
        await asyncio.sleep(5)
        figures = sender.figures()["w"]
    numbers = receiver.numbers()
    assert numbers == sorted(set(numbers))
    assert [one for one, status in receiver.jobs() if status == "success"] == ids
    assert figures["events"] == len(numbers)
    assert (figures["failures"], figures["gaps"], figures["failing"]) == (0, 0, 0)
    assert len(receiver.requests) < len(numbers)  # events of a moment share a request


async def test_failing_receiver_gets_the_same_again_after_growing_pauses(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    receiver.error = "status 500"
    async with sending(master, receiver):
        job = await delay(master)
        await asyncio.sleep(3600)
        assert len({delivery for delivery, _events in receiver.requests}) == 1
        assert 8 <= len(receiver.requests) <= 10
        state = state_of(master)
        assert (state.error, state.failures) == ("status 500", len(receiver.requests))
        (finding,) = webhook_findings(master.snapshot, LoopClock().time())
        assert (finding.code, finding.is_error) == ("ECLUSTERWEBHOOK", False)
        assert "gnt-cluster webhook test w" in finding.text
        receiver.error = ""
        await asyncio.sleep(600)
        assert [one for one, status in receiver.jobs() if status == "success"] == [job]
        state = state_of(master)
        assert (state.error, state.failures, state.failing_since) == ("", 0, 0.0)
        assert not list(webhook_findings(master.snapshot, LoopClock().time()))


async def test_failing_or_slow_receiver_delays_neither_jobs_nor_other_rules(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    succeeded(await master.run(add(webhook_name="slow", kinds=["job"])))
    good = Receiver()

    async def post(cluster: str, webhook: Webhook, delivery: str, events: Sequence[Happened], /) -> Posted:  # fmt: skip
        if webhook.name == "slow":
            await asyncio.sleep(15)
            return Posted(0, 15.0, "no answer")
        return await good(cluster, webhook, delivery, events)

    async with sending(master, post):  # type: ignore[arg-type] # a function with the same parameters
        begun = LoopClock().monotonic()
        ids = [await delay(master) for _ in range(20)]
        assert LoopClock().monotonic() - begun < 15
        await asyncio.sleep(2)
        assert [one for one, status in good.jobs() if status == "success"] == ids


async def test_next_master_continues_and_may_repeat_with_the_same_numbers(world: World) -> None:
    master = await Master.begin(world)
    succeeded(await master.run(add(kinds=["job"])))
    receiver, ids = Receiver(), []
    async with sending(master, receiver):
        for _ in range(5):
            ids.append(await delay(master))
            await asyncio.sleep(STORE_S / 2)
        master.die()
    master = await master.restart()
    async with sending(master, receiver):
        ids.append(await delay(master))
        await asyncio.sleep(5)
    done = [one for one, status in receiver.jobs() if status == "success"]
    assert (
        list(dict.fromkeys(done)) == ids
    )  # none is missing, and the first deliveries are in order
    assert len(done) - len(ids) <= 2  # those of the last half minute come again
    await master.end()


@pytest.mark.parametrize("number", range(8))
async def test_each_refused_commit_loses_no_event(world: World, number: int) -> None:
    master = await Master.begin(world)
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    receiver.error = "status 500"
    async with sending(master, receiver):
        ids = [await delay(master)]
        master.store.inject(Refuse(), after=number)
        await asyncio.sleep(300)
        receiver.error = ""
        await asyncio.sleep(1000)
        master.store.forget_faults()
        ids.append(await delay(master))
        await asyncio.sleep(100)
    done = [one for one, status in receiver.jobs() if status == "success"]
    assert list(dict.fromkeys(done)) == ids
    await master.end()


async def test_lost_events_are_counted_and_reported_to_the_receiver(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    receiver.error = "status 500"
    async with sending(master, receiver) as sender:
        for _ in range(5):
            await delay(master)
        await asyncio.sleep(700)
        await delay(master)
        del master.world.disk.log[:-2]
        receiver.error = ""
        await asyncio.sleep(700)
        gaps = [one for one in receiver.accepted if one.kind == GAP]
        assert [one.content["gaps"] for one in gaps] == [1]
        assert sender.figures()["w"]["gaps"] == 1
        job = await delay(master)
        await asyncio.sleep(5)
    assert receiver.jobs()[-1] == (job, "success")
    assert state_of(master).gaps == 1


async def test_paused_rule_sends_nothing_and_later_only_new_events(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    async with sending(master, receiver):
        first = await delay(master)
        await asyncio.sleep(5)
        pause = await master.run(modify(is_paused=True))
        await asyncio.sleep(5)
        assert not master.snapshot.table(WebhookState)
        await delay(master)
        await asyncio.sleep(60)
        succeeded(await master.run(modify(is_paused=False)))
        await asyncio.sleep(5)
        last = await delay(master)
        await asyncio.sleep(5)
    done = [one for one, status in receiver.jobs() if status == "success"]
    assert done in ([first, last], [first, pause.id, last])


async def test_changed_rule_continues_where_it_was(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    receiver = Receiver()
    async with sending(master, receiver):
        await delay(master)
        await asyncio.sleep(2)
        succeeded(await master.run(modify(url="https://other.example.com/")))
        await delay(master)
        await asyncio.sleep(5)
    numbers = receiver.numbers()
    assert numbers == sorted(set(numbers))


async def test_idle_rule_writes_nothing(master: Master) -> None:
    succeeded(await master.run(add(kinds=["job"])))
    async with sending(master, Receiver()):
        await delay(master)
        await asyncio.sleep(STORE_S * 4)
        position = master.snapshot.position
        await asyncio.sleep(24 * 3600)
        assert master.snapshot.position == position


def test_batches_are_bounded_in_number_and_size() -> None:
    small = [Happened(str(one), "job", {"id": one}) for one in range(250)]
    assert [len(one) for one in batches(small)] == [BATCH, BATCH, 50]
    large = [Happened(str(one), "job", {"text": "x" * 200_000}) for one in range(3)]
    assert [len(one) for one in batches(large)] == [1, 1, 1]
    assert batches([]) == []
    assert [one.number for batch in batches(small) for one in batch] == [
        one.number for one in small
    ]
