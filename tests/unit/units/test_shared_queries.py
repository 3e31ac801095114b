"""Queries that jobs share: one call for all who ask at the same time, and no answer from before a question."""

import asyncio
from typing import Any

import pytest

from ganeti.base.errors import RpcError
from ganeti.model.objects import Node
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfoArgs
from ganeti.units.shared_queries import LONGEST_WAIT_S, SharedQueries
from tests.support.units_cluster import Master

pytestmark = pytest.mark.virtual_time
ARGS = NodeInfoArgs(hypervisors=[], storage=[])


class Nodes:
    """Answers each call with its number once it is let through; an error for the numbers in `failing`."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str, Any]] = []
        self.open = asyncio.Event()
        self.failing: set[int] = set()

    async def call(self, node: Any, procedure: Any, args: Any, *, key: str = "") -> Any:
        assert not key
        self.begun.append((node.name, procedure.name, args))
        number = len(self.begun)
        await self.open.wait()
        if number in self.failing:
            raise RpcError(node.name, f"call {number} failed")
        return number

    async def call_all(self, nodes: Any, procedure: Any, args: Any) -> Any:
        raise NotImplementedError


def asks(queries: SharedQueries, node: Node, count: int = 1) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(queries.ask(node, NODE_INFO, ARGS)) for _ in range(count)]


async def answers(tasks: list[asyncio.Task[Any]]) -> list[int]:
    return [one.answer for one in await asyncio.gather(*tasks)]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_call_answers_all_who_asked_before_it_began(master: Master) -> None:
    nodes, node = Nodes(), master.node(1)
    queries = SharedQueries(nodes)
    first = asks(queries, node, 10)
    await turns()
    late = asks(queries, node, 10)
    await turns()
    assert len(nodes.begun) == 1
    nodes.open.set()
    assert await answers(first) == [1] * 10
    # The first answer may be older than the late questions.
    assert await answers(late) == [2] * 10
    assert await answers(asks(queries, node)) == [3]
    assert (queries._next, queries._last) == ({}, {})


async def test_other_nodes_and_other_arguments_are_other_questions(master: Master) -> None:
    nodes = Nodes()
    nodes.open.set()
    queries = SharedQueries(nodes)
    other = NodeInfoArgs(hypervisors=["fake"], storage=[])
    asked = [(master.node(1), ARGS), (master.node(2), ARGS), (master.node(1), other)]
    tasks = [asyncio.create_task(queries.ask(node, NODE_INFO, args)) for node, args in asked]
    assert sorted(await answers(tasks)) == [1, 2, 3]


async def test_an_error_reaches_all_and_the_next_question_is_a_new_call(master: Master) -> None:
    nodes, node = Nodes(), master.node(1)
    nodes.failing = {1}
    nodes.open.set()
    queries = SharedQueries(nodes)
    both = asks(queries, node, 2)
    failed = await asyncio.gather(*both, return_exceptions=True)
    assert ["call 1 failed" in str(one) for one in failed] == [True, True]
    assert await answers(asks(queries, node)) == [2]


async def test_call_that_hangs_does_not_hold_up_the_next_one(master: Master) -> None:
    nodes, node = Nodes(), master.node(1)
    queries = SharedQueries(nodes)
    tasks = []
    for number in range(3):
        tasks += asks(queries, node, 2)
        await asyncio.sleep(LONGEST_WAIT_S + 0.1)
        assert len(nodes.begun) == number + 1
    nodes.open.set()
    assert await answers(tasks) == [1, 1, 2, 2, 3, 3]
    assert (queries._next, queries._last) == ({}, {})


async def test_pending_jobs_are_those_of_the_moment_when_the_call_begins(master: Master) -> None:
    nodes, node, pending = Nodes(), master.node(1), {1}
    queries = SharedQueries(nodes, lambda: frozenset(pending))
    first = asks(queries, node)
    await turns()
    pending.add(2)
    second = asks(queries, node)
    await turns()
    pending.discard(1)
    nodes.open.set()
    found = await asyncio.gather(*first, *second)
    assert [(one.answer, one.pending) for one in found] == [(1, {1}), (2, {2})]


async def test_who_stops_waiting_takes_the_answer_from_nobody(master: Master) -> None:
    nodes, node = Nodes(), master.node(1)
    queries = SharedQueries(nodes)
    leaving, staying = asks(queries, node, 2)
    await turns()
    leaving.cancel()
    await turns()
    nodes.open.set()
    assert await answers([staying]) == [1]
    with pytest.raises(asyncio.CancelledError):
        await leaving
