"""Reports of nodes for allocations: how often nodes are asked."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node, NodeUuid
from ganeti.units.node_data import NodeData
from ganeti.units.placements import Placements
from tests.unit.config.sample import sample_cluster, sample_group, sample_node


@dataclass
class Services:
    """Nodes that answer at once, and a clock that is set."""

    placements: Placements = field(default_factory=Placements)
    asked: int = 0
    now: float = 100.0

    @property
    def clock(self) -> Any:
        return self

    @property
    def rpc(self) -> Any:
        return self

    def monotonic(self) -> float:
        return self.now

    async def call_all(self, nodes: Iterable[Node], *_what: object) -> dict[NodeUuid, Any]:
        found = {NodeUuid(node.uuid): None for node in nodes}
        self.asked += len(found)
        return found


def snapshot(nodes: int) -> Snapshot:
    made = [sample_node(1)] + [_node(number) for number in range(2, nodes + 1)]
    return Snapshot.of(1, sample_cluster(), nodes=made, groups=[sample_group()])


def _node(number: int) -> Node:
    return replace(
        sample_node(1), uuid=NodeUuid(f"node-{number}"), name=f"node{number}.example.com"
    )


@pytest.mark.parametrize(("nodes", "rounds"), [(10, 30), (100, 30), (1000, 3)])
async def test_nodes_are_asked_less_often_in_a_large_cluster(nodes: int, rounds: int) -> None:
    services, data, cluster = Services(), NodeData(2.0), snapshot(nodes)
    for _ in range(60):
        await data.reports(services, cluster, fresh=False)
        services.now += 1.0
    assert services.asked == nodes * rounds
    await data.reports(services, cluster, fresh=True)
    assert services.asked == nodes * (rounds + 1)


async def test_nothing_is_remembered_without_an_age() -> None:
    services, data, cluster = Services(), NodeData(), snapshot(200)
    for _ in range(3):
        await data.reports(services, cluster, fresh=False)
    assert services.asked == 600
