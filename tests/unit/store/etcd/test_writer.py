"""What the callers of a transaction learn when etcd is full, or a fault of our own ends the queue before it."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, cast

import pytest

from ganeti.base.errors import CommitUnknown, NotMaster, Refused
from ganeti.store.etcd.gateway import Full, Gateway, Unanswered
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.messages import (
    Compare,
    KeyValue,
    OperationAnswer,
    RangeAnswer,
    Request,
    TxnAnswer,
)
from ganeti.store.etcd.writer import PROBE_S, HeldLease, Writer
from ganeti.store.interface import Put, Transaction

SIZE = 10


class BrokenGateway:
    """Raises what no gateway is to raise, once the first request is on its way."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def txn(self, *_: Any) -> None:
        self.asked.set()
        await self.go_on.wait()
        raise ZeroDivisionError("a fault of our own")


async def _nothing() -> None:
    """There is no room to make."""


def row(key: str) -> Transaction:
    return Transaction((Put("instance", key, b"{}"),))


@pytest.mark.requirement("G1")
async def test_a_fault_of_our_own_leaves_no_caller_without_an_answer() -> None:
    lost: list[str] = []
    gateway = BrokenGateway()
    term = HeldLease(epoch=1, token=1, is_valid=lambda: True, lost=lost.append, make_room=_nothing)
    writer = Writer(cast("Gateway", gateway), Keys("cluster"), Head(), term)
    written = [writer.add(row("a"), SIZE), writer.add(row("b"), SIZE)]
    await gateway.asked.wait()
    behind = writer.add(row("c"), SIZE)
    gateway.go_on.set()
    for one in written:
        with pytest.raises(CommitUnknown, match="unexpected"):
            await one
    with pytest.raises(NotMaster):
        await behind
    assert len(lost) == 1
    with pytest.raises(NotMaster):
        await writer.add(row("d"), SIZE)
    assert writer.waiting.bytes == 0


KEYS = Keys("cluster")

Fate = Literal["carried out, full", "full", "carried out, unanswered", "unanswered"]


class FullEtcd:
    """An etcd with one leader and one head; each request of `fates` has its own, the others are as usual."""

    def __init__(self, *fates: Fate, unanswered_looks: int = 0) -> None:
        self.head: bytes | None = None
        self.fates = list(fates)
        self.unanswered_looks = unanswered_looks
        self.room_made = 0

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[Request], _: Sequence[Request] = ()
    ) -> TxnAnswer:
        await asyncio.sleep(0)
        fate = self.fates.pop(0) if self.fates else None
        holds = all(one.value == self.head for one in compare if one.key == KEYS.head)
        if holds and fate not in {"full", "unanswered"}:
            self.head = success[0]["request_put"]["value"]
        if fate is None:
            leader = RangeAnswer(kvs=(KeyValue(KEYS.leader, create_revision=1),))
            answers = (OperationAnswer(leader), OperationAnswer(self._heads()))
            return TxnAnswer(succeeded=holds, responses=answers)
        if "unanswered" in fate:
            raise Unanswered("no answer")
        raise Full("database space exceeded")

    async def range(self, key: bytes) -> RangeAnswer:
        assert key == KEYS.head
        await asyncio.sleep(0)
        if self.unanswered_looks:
            self.unanswered_looks -= 1
            raise Unanswered("no answer")
        return self._heads()

    async def make_room(self) -> None:
        self.room_made += 1

    def writer(self) -> Writer:
        term = HeldLease(
            epoch=1,
            token=1,
            is_valid=lambda: True,
            lost=lambda _: None,
            make_room=self.make_room,
        )
        return Writer(cast("Gateway", self), KEYS, Head(), term)

    def _heads(self) -> RangeAnswer:
        return RangeAnswer(kvs=(KeyValue(KEYS.head, self.head),) if self.head is not None else ())


@pytest.mark.virtual_time
@pytest.mark.requirement("G1", "G16")
@pytest.mark.parametrize(
    ("fates", "unanswered_looks", "room_made"),
    [
        (["carried out, full"], 0, 0),
        (["carried out, full"], 1, 1),
        (["carried out, unanswered", "full"], 0, 0),
        (["unanswered", "full"], 0, 1),
        (["full"], 1, 1),
    ],
)
async def test_what_a_full_etcd_has_carried_out_is_written(
    fates: list[Fate], unanswered_looks: int, room_made: int
) -> None:
    etcd = FullEtcd(*fates, unanswered_looks=unanswered_looks)
    writer = etcd.writer()
    position = await writer.add(row("a"), SIZE)
    assert etcd.head == writer.head.encode()
    assert writer.head.position == position
    assert not etcd.fates
    await asyncio.sleep(PROBE_S + 1)
    assert etcd.room_made == room_made
    await writer.add(row("b"), SIZE)
    await writer.end("the test is over")


@pytest.mark.virtual_time
@pytest.mark.requirement("G1", "G16")
async def test_what_a_full_etcd_has_not_carried_out_is_refused_and_the_next_is_written() -> None:
    etcd = FullEtcd("full")
    writer = etcd.writer()
    with pytest.raises(Refused, match="nothing was changed"):
        await writer.add(row("a"), SIZE)
    assert await etcd.range(KEYS.head) == RangeAnswer()
    with pytest.raises(Refused, match="no room"):
        await writer.add(row("b"), SIZE)
    await asyncio.sleep(PROBE_S + 1)
    assert etcd.room_made == 1
    await writer.add(row("c"), SIZE)
    assert etcd.head == writer.head.encode()
    await writer.end("the test is over")
