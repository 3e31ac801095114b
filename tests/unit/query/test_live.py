import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.objects import Node
from ganeti.query.fields.field import NO_DATA, Need
from ganeti.query.live import DEADLINE_S, MAX_AGE_S, SILENT_DEADLINE_S, LiveSource
from ganeti.rpc.procedures.form import Procedure
from ganeti.simulation.virtual_time import LoopClock
from tests.unit.query.cluster import NODE_UUIDS, FakeNodes, snapshot

pytestmark = pytest.mark.virtual_time

NEEDS = frozenset((Need.INSTANCES,))


class SlowNodes(FakeNodes):
    """node2 takes `delay_s`, and every call is counted."""

    delay_s = 0.0

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        if node.uuid == NODE_UUIDS[1]:
            await asyncio.sleep(self.delay_s)
        return await super().call(node, procedure, args)


@pytest.fixture
async def nodes() -> SlowNodes:
    return SlowNodes()


@pytest.fixture
async def source(nodes: SlowNodes) -> AsyncIterator[LiveSource]:
    live = LiveSource(nodes, LoopClock())
    yield live
    await live.close()


async def test_queries_that_come_together_share_the_calls(
    source: LiveSource, nodes: SlowNodes
) -> None:
    nodes.delay_s = 0.5
    await asyncio.gather(*(source.gather(snapshot(), NEEDS) for _ in range(50)))
    await source.gather(snapshot(), NEEDS)
    assert len(nodes.calls) == 2


async def test_old_data_is_not_used(source: LiveSource, nodes: SlowNodes) -> None:
    await source.gather(snapshot(), NEEDS)
    await asyncio.sleep(MAX_AGE_S + 0.1)
    await source.gather(snapshot(), NEEDS)
    assert len(nodes.calls) == 4


async def test_data_from_before_a_change_is_not_used(source: LiveSource, nodes: SlowNodes) -> None:
    await source.gather(snapshot(1), NEEDS)
    await source.gather(snapshot(2), NEEDS)
    assert len(nodes.calls) == 4


async def test_data_from_before_a_node_was_changed_is_not_used(nodes: SlowNodes) -> None:
    changes = 0
    live = LiveSource(nodes, LoopClock(), lambda: changes)
    await live.gather(snapshot(), NEEDS)
    await live.gather(snapshot(), NEEDS)
    assert len(nodes.calls) == 2
    changes += 1
    await live.gather(snapshot(), NEEDS)
    assert len(nodes.calls) == 4
    await live.close()


async def test_a_query_that_comes_with_a_change_waits_for_the_next_round(
    source: LiveSource, nodes: SlowNodes
) -> None:
    nodes.delay_s = 0.5
    first = asyncio.create_task(source.gather(snapshot(1), NEEDS))
    await asyncio.sleep(0.1)
    later = [asyncio.create_task(source.gather(snapshot(2), NEEDS)) for _ in range(10)]
    await asyncio.gather(first, *later)
    assert len(nodes.calls) == 4


async def test_a_hung_node_costs_a_query_its_deadline_and_the_next_one_less(
    source: LiveSource, nodes: SlowNodes
) -> None:
    nodes.delay_s = 3600
    clock = LoopClock()
    live = await source.gather(snapshot(), NEEDS)
    assert clock.monotonic() == pytest.approx(DEADLINE_S)
    assert live.instances[NODE_UUIDS[1]] is NO_DATA
    assert live.instances[NODE_UUIDS[0]] == {}
    await source.gather(snapshot(), NEEDS)
    assert clock.monotonic() == pytest.approx(DEADLINE_S + SILENT_DEADLINE_S)


async def test_a_node_that_answers_again_gets_its_time_back(
    source: LiveSource, nodes: SlowNodes
) -> None:
    nodes.delay_s = 3600
    await source.gather(snapshot(), NEEDS)
    nodes.delay_s = 0.1
    await source.gather(snapshot(), NEEDS)
    nodes.delay_s = 1.0
    await asyncio.sleep(10)
    live = await source.gather(snapshot(), NEEDS)
    assert live.instances[NODE_UUIDS[1]] == {}


async def test_offline_nodes_are_not_called(source: LiveSource, nodes: SlowNodes) -> None:
    await source.gather(snapshot(), {Need.NODES})
    assert [name for _procedure, name in nodes.calls] == ["node1", "node2"]


async def test_a_query_that_is_dropped_does_not_end_the_others(
    source: LiveSource, nodes: SlowNodes
) -> None:
    nodes.delay_s = 1.0
    dropped = asyncio.create_task(source.gather(snapshot(), NEEDS))
    kept = asyncio.create_task(source.gather(snapshot(), NEEDS))
    await asyncio.sleep(0.1)
    dropped.cancel()
    live = await kept
    assert live.instances[NODE_UUIDS[1]] == {}
    assert dropped.cancelled()
