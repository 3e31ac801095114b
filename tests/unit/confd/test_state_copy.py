"""The projection of a state in etcd, with a gateway that is played."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from ganeti.confd.state_copy import StateCopy
from ganeti.config.transaction import put_row
from ganeti.model.stored import Stored
from ganeti.protocols.confd import QueryType
from ganeti.store.etcd.gateway import Compacted, Unanswered
from ganeti.store.etcd.keys import Head, Keys, sealed
from ganeti.store.etcd.messages import (
    Event,
    Header,
    KeyValue,
    OperationAnswer,
    RangeAnswer,
    TxnAnswer,
    WatchAnswer,
)
from ganeti.store.etcd.reader import EtcdReader
from ganeti.store.interface import Position
from tests.unit.confd.cluster import ask, objects
from tests.unit.config.sample import sample_instance

KEYS = Keys("cluster")
BOTH = ["web1.example.com", "web2.example.com"]
pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S53", "S63")]


class PlayedEtcd:
    """Keys with revisions, and a watch that tells of each revision at once, or breaks."""

    def __init__(self) -> None:
        self.values: dict[bytes, KeyValue] = {}
        self.revision = 1
        self.news: asyncio.Queue[WatchAnswer | Exception] = asyncio.Queue()
        self.watches: list[int] = []
        self.is_down = False
        self.is_closed = False

    def write(self, position: Position, *things: Stored, gone: Sequence[bytes] = ()) -> None:
        self.revision += 1
        pairs = [(KEYS.head, Head(position).encode())]
        for thing in things:
            row = put_row(thing)
            pairs.append((KEYS.row(row.kind, row.key), sealed(row.kind, row.key, row.value)))
        events = [Event(self.put(key, value)) for key, value in pairs]
        for key in gone:
            del self.values[key]
            events.append(Event(KeyValue(key, mod_revision=self.revision), "DELETE"))
        self.news.put_nowait(WatchAnswer(Header(revision=self.revision), tuple(events)))

    def put(self, key: bytes, value: bytes) -> KeyValue:
        self.values[key] = KeyValue(key, value, mod_revision=self.revision)
        return self.values[key]

    async def look(self, keys: Sequence[bytes]) -> TxnAnswer:
        if self.is_down:
            raise Unanswered("no quorum")
        found = [tuple(self.values[key] for key in (one,) if key in self.values) for one in keys]
        ranges = [OperationAnswer(RangeAnswer(kvs=kvs)) for kvs in found]
        return TxnAnswer(Header(revision=self.revision), responses=tuple(ranges))

    async def range(self, key: bytes, end: bytes, *, revision: int, limit: int) -> RangeAnswer:
        assert revision == self.revision
        found = [self.values[one] for one in sorted(self.values) if key <= one < end]
        return RangeAnswer(kvs=tuple(found[:2]), more=len(found) > 2)

    async def watch(
        self, *ranges: tuple[bytes, bytes], revision: int, silence_s: float
    ) -> AsyncIterator[WatchAnswer]:
        assert ranges == ((KEYS.prefix, KEYS.end),)
        self.watches.append(revision)
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    answer = await self.news.get()
            except TimeoutError:
                return
            if isinstance(answer, Exception):
                raise answer
            if answer.header.revision >= revision:
                yield answer

    async def close(self) -> None:
        self.is_closed = True


class Following:
    """A copy that follows it."""

    def __init__(self, etcd: PlayedEtcd) -> None:
        self.etcd = etcd
        self.copy = StateCopy(EtcdReader(etcd, "cluster"))  # type: ignore[arg-type] # it is played
        self.task = asyncio.create_task(self.copy.follow())

    def names(self) -> object:
        return ask(self.copy.facts, QueryType.INSTANCES)[1]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))
        assert self.etcd.is_closed


@pytest.fixture
async def following() -> AsyncIterator[Following]:
    etcd = PlayedEtcd()
    etcd.write(Position(1, 1), *objects())
    made = Following(etcd)
    await asyncio.sleep(1)
    yield made
    await made.end()


async def test_all_rows_are_read_and_each_transaction_is_followed(following: Following) -> None:
    etcd, copy = following.etcd, following.copy
    assert following.names() == BOTH
    assert copy.facts.position == Position(1, 1).as_int()
    etcd.write(Position(1, 2), sample_instance(3))
    etcd.write(Position(2, 1), gone=[KEYS.row("instance", sample_instance(1).uuid)])
    await asyncio.sleep(0.1)
    assert following.names() == ["web2.example.com", "web3.example.com"]
    assert copy.facts.position == Position(2, 1).as_int()


async def test_broken_watch_continues_at_its_revision(following: Following) -> None:
    etcd = following.etcd
    etcd.news.put_nowait(Unanswered("the line broke"))
    await asyncio.sleep(0.1)
    assert following.names() == BOTH
    etcd.write(Position(1, 2), sample_instance(3))
    await asyncio.sleep(1)
    assert following.names() == [*BOTH, "web3.example.com"]
    assert etcd.watches == [3, 3]
    await asyncio.sleep(60)
    assert etcd.watches[-1] == 4


async def test_compacted_revision_causes_a_full_read(following: Following) -> None:
    etcd = following.etcd
    etcd.write(Position(1, 2), sample_instance(3))
    etcd.news = asyncio.Queue()
    etcd.news.put_nowait(Compacted("too old", 11))
    await asyncio.sleep(60)
    assert following.names() == [*BOTH, "web3.example.com"]


async def test_while_etcd_is_silent_what_is_known_stays(following: Following) -> None:
    etcd = following.etcd
    etcd.is_down = True
    etcd.news.put_nowait(Compacted("too old", 11))
    await asyncio.sleep(30)
    assert following.names() == BOTH
    etcd.is_down = False
    etcd.write(Position(1, 2), sample_instance(3))
    await asyncio.sleep(30)
    assert following.names() == [*BOTH, "web3.example.com"]


async def test_a_state_that_is_being_put_there_is_not_shown(following: Following) -> None:
    etcd = following.etcd
    etcd.revision += 1
    mark = etcd.put(KEYS.incomplete, b"x")
    etcd.news.put_nowait(WatchAnswer(Header(revision=etcd.revision), (Event(mark),)))
    etcd.write(Position(2, 1), gone=[KEYS.row("instance", sample_instance(1).uuid)])
    await asyncio.sleep(10)
    assert following.names() == BOTH
    del etcd.values[KEYS.incomplete]
    await asyncio.sleep(10)
    assert following.names() == ["web2.example.com"]
    assert following.copy.facts.position == Position(2, 1).as_int()


async def test_damaged_row_is_logged_and_all_is_read_again(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    etcd = following.etcd
    etcd.revision += 1
    broken = etcd.put(KEYS.row("instance", sample_instance(1).uuid), b"1234{}")
    etcd.news.put_nowait(WatchAnswer(Header(revision=etcd.revision), (Event(broken),)))
    await asyncio.sleep(10)
    assert "checksum" in caplog.text
    assert following.names() == BOTH
