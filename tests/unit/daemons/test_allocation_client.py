"""Questions that have only what has changed, to a side that may be started again."""

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

    def told_nodes(self) -> list[list[str]]:
        """The names of nodes in each question that are not the same as before."""
        return [
            [name for name, node in one["message"]["nodes"].items() if node is not None]
            for one in self.asked
        ]


def message() -> dict[str, Any]:
    found = clusters.message(clusters.cluster(4, 1), clusters.allocation("plain"))
    encoded = {
        kind: {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in found[kind].items()}
        for kind in ("nodes", "instances")
    }
    return {**found, **encoded}


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


async def test_nodes_keep_their_places_and_only_the_changed_ones_are_told() -> None:
    side, given = Side(), message()
    client = AllocationClient(side.exchange)
    await client.answer(given, {})
    names = list(given["nodes"])
    full = changed(given["nodes"][names[-1]], free_memory=0)
    less = {**given, "nodes": {**given["nodes"], names[-1]: full}}
    assert await client.answer(less, {}) == whole(less)
    turned = {**less, "nodes": dict(reversed(less["nodes"].items()))}
    assert await client.answer(turned, {}) == whole(turned)
    used = {
        node for one in given["instances"].values() for node in msgspec.json.decode(one)["nodes"]
    }
    unused = [name for name in names if name not in used]
    kept = {name: one for name, one in less["nodes"].items() if name not in unused[:1]}
    fewer = {**less, "nodes": {**kept, "new": given["nodes"][names[0]]}}
    assert await client.answer(fewer, {}) == whole(fewer)
    assert await client.answer(less, {}) == whole(less)
    assert side.told_nodes() == [names, [names[-1]], [], ["new"], unused[:1]]


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
