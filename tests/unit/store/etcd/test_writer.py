"""What the callers of a transaction learn when a fault of our own ends the queue before etcd."""

import asyncio
from typing import Any, cast

import pytest

from ganeti.base.errors import CommitUnknown, NotMaster
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.writer import Term, Writer
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
    term = Term(epoch=1, token=1, is_valid=lambda: True, lost=lost.append, make_room=_nothing)
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
