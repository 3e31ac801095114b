"""Questions that have only the instances that have changed, to a side that may be started again."""

import json
from typing import Any

import msgspec
import placement_clusters as clusters
import pytest

from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.placement.answers import answer


class Side:
    """A worker in this process that records what it is asked."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.asked: list[dict[str, Any]] = []

    async def exchange(self, question: bytes) -> bytes:
        self.asked.append(json.loads(question))
        return self.worker.answer(question)

    def told(self) -> list[set[str]]:
        """The names of instances in each question."""
        return [set(one["message"]["instances"]) for one in self.asked]


def message() -> dict[str, Any]:
    found = clusters.message(clusters.cluster(4, 1), clusters.allocation("plain"))
    instances = {
        name: msgspec.Raw(msgspec.json.encode(one)) for name, one in found["instances"].items()
    }
    return {**found, "instances": instances}


def changed(one: object, **changes: Any) -> msgspec.Raw:
    assert isinstance(one, msgspec.Raw)
    return msgspec.Raw(msgspec.json.encode({**msgspec.json.decode(one), **changes}))


def whole(given: dict[str, Any]) -> dict[str, Any]:
    """The answer to the same message by a program that knows nothing."""
    return answer(msgspec.json.encode(given))


async def test_a_question_has_only_what_has_changed_since_the_last_one() -> None:
    side, given = Side(), message()
    client = AllocationClient(side.exchange)
    assert await client.answer(given, {}) == whole(given)
    assert await client.answer(given, {}) == whole(given)
    (first, one), (second, _), *others = given["instances"].items()
    later = {**given, "instances": {first: changed(one, memory=4096), **dict(others), "new": one}}
    assert await client.answer(later, {}) == whole(later)
    assert side.told() == [set(given["instances"]), set(), {first, "new"}]
    assert side.asked[-1]["gone"] == [second]


async def test_a_side_that_was_started_again_gets_everything() -> None:
    side, given = Side(), message()
    client = AllocationClient(side.exchange)
    await client.answer(given, {})
    side.worker = Worker()
    assert await client.answer(given, {}) == whole(given)
    assert side.told() == [set(given["instances"]), set(), set(given["instances"])]
    assert await client.answer(given, {}) == whole(given)
    assert side.told()[-1] == set()


async def test_nothing_is_assumed_after_a_question_without_an_answer() -> None:
    """The side has read it, but the answer was lost."""
    side, given = Side(), message()
    client = AllocationClient(side.exchange)
    await client.answer(given, {})
    first, one = next(iter(given["instances"].items()))
    later = {**given, "instances": {**given["instances"], first: changed(one, memory=4096)}}

    async def lose(question: bytes) -> bytes:
        await side.exchange(question)
        raise EOFError

    client._exchange = lose
    with pytest.raises(EOFError):
        await client.answer(later, {})
    client._exchange = side.exchange
    assert await client.answer(given, {}) == whole(given)
    assert side.told()[-1] == set(given["instances"])


async def test_nothing_is_assumed_after_a_message_that_was_refused() -> None:
    side, given = Side(), message()
    client = AllocationClient(side.exchange)
    await client.answer(given, {})
    bad = {**given, "instances": {**given["instances"], "new": msgspec.Raw(b'{"memory":"much"}')}}
    assert not (await client.answer(bad, {}))["success"]
    assert await client.answer(given, {}) == whole(given)
    assert side.told()[-1] == set(given["instances"])


async def test_a_side_that_never_knows_anything_is_an_error() -> None:
    async def forgetful(_question: bytes) -> bytes:
        return b'{"is_lost":true}'

    with pytest.raises(EOFError):
        await AllocationClient(forgetful).answer(message(), {})
