"""Reports of nodes for allocations: how often nodes are asked, and what is subtracted from older reports."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import RpcFailed
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.node_changes import NodeChanges
from ganeti.rpc.procedures.host import NodeInfo, StorageSpace
from ganeti.units.node_data import UNCHANGED_S, NodeData
from ganeti.units.placements import Placement, Placements
from tests.unit.config.sample import sample_cluster, sample_group, sample_instance, sample_node

FREE_MIB = 8192
SHARED, LOCAL = (StorageUnit(kind=kind, key="/srv") for kind in ("sharedfile", "file"))
INFO = NodeInfo(
    memory_total=FREE_MIB,
    memory_free=FREE_MIB,
    memory_node=0,
    cpu_total=4,
    cpu_nodes=1,
    cpu_sockets=1,
    cpu_node=0,
    boot_id="b",
    time=1.0,
    storage=[StorageSpace(unit=unit, total=FREE_MIB, free=FREE_MIB) for unit in (SHARED, LOCAL)],
    hypervisor_versions={},
)


@dataclass
class Services:
    """Nodes that answer at once, and a clock that is set."""

    placements: Placements = field(default_factory=Placements)
    answers: dict[str, Any] = field(default_factory=dict)
    """By UUID, instead of INFO."""
    asked: int = 0
    now: float = 100.0
    gate: asyncio.Event | None = None
    """What answers wait for."""

    @property
    def clock(self) -> Any:
        return self

    @property
    def rpc(self) -> Any:
        return self

    def monotonic(self) -> float:
        return self.now

    async def call_all(self, nodes: Iterable[Node], *_what: object) -> dict[NodeUuid, Any]:
        found = {NodeUuid(node.uuid): self.answers.get(node.uuid, INFO) for node in nodes}
        self.asked += len(found)
        if self.gate is not None:
            await self.gate.wait()
        return found


def snapshot(nodes: int, **fields: Any) -> Snapshot:
    made = [sample_node(1)] + [_node(number) for number in range(2, nodes + 1)]
    return Snapshot.of(1, CLUSTER, nodes=made, groups=[sample_group()], **fields)


CLUSTER = sample_cluster()


def _node(number: int) -> Node:
    return replace(
        sample_node(1), uuid=NodeUuid(f"node-{number}"), name=f"node{number}.example.com"
    )


def placement(name: str, node: Node, template: str = "file") -> Placement:
    unit = SHARED if template == "sharedfile" else LOCAL
    message = {"memory": 1024, "disk_space_total": 512, "disk_template": template, "disks": []}
    return Placement(1, (NodeUuid(node.uuid),), name, message, will_run=True, unit=unit)


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


async def test_only_nodes_that_a_job_changed_are_asked_again() -> None:
    services, changes, cluster = Services(), NodeChanges(), snapshot(10)
    data = NodeData(2.0, changes)
    await data.reports(services, cluster, fresh=False)
    for _ in range(3):
        services.now += 10.0
        changes.add(_node(2).uuid)
        await data.reports(services, cluster, fresh=False)
    assert services.asked == 10 + 3
    services.now += UNCHANGED_S
    await data.reports(services, cluster, fresh=False)
    assert services.asked == 10 + 3 + 10


async def test_node_that_a_job_looked_at_itself_is_asked_again() -> None:
    services, data = Services(), NodeData(2.0, NodeChanges())
    three = snapshot(3)
    await data.reports(services, three, fresh=False)
    data.doubt(NodeUuid("node-2"))
    services.now += 10
    await data.reports(services, three, fresh=False)
    assert services.asked == 4


async def test_change_during_a_query_makes_its_answer_out_of_date() -> None:
    services, changes, cluster = Services(gate=asyncio.Event()), NodeChanges(), snapshot(10)
    data = NodeData(2.0, changes)
    asking = asyncio.create_task(data.reports(services, cluster, fresh=False))
    await asyncio.sleep(0)
    changes.add(_node(2).uuid)
    assert services.gate is not None
    services.gate.set()
    await asking
    services.now += 10.0
    await data.reports(services, cluster, fresh=False)
    assert services.asked == 10 + 1


async def test_only_new_nodes_and_those_without_an_answer_are_asked_again() -> None:
    services = Services(answers={_node(2).uuid: RpcFailed("node2", "it is down")})
    data = NodeData(2.0, NodeChanges())
    await data.reports(services, snapshot(10), fresh=False)
    services.now += 10.0
    found = await data.reports(services, snapshot(11), fresh=False)
    assert services.asked == 10 + 2
    assert found.live(_node(2), LOCAL, exclusive=False) is None
    assert found.live(_node(11), LOCAL, exclusive=False) is not None


async def test_changed_cluster_makes_all_reports_out_of_date() -> None:
    services, data, before = Services(), NodeData(2.0, NodeChanges()), snapshot(10)
    await data.reports(services, before, fresh=False)
    changed = replace(CLUSTER, enabled_hypervisors=("fake",))
    nodes, groups = before.nodes.values(), before.groups.values()
    now = Snapshot.of(2, changed, nodes=nodes, groups=groups)
    await data.reports(services, now, fresh=False)
    assert services.asked == 20


async def test_placements_since_the_report_of_each_node_are_subtracted() -> None:
    services, changes, cluster = Services(), NodeChanges(), snapshot(3)
    data, first, second = NodeData(2.0, changes), _node(2), _node(3)

    async def free() -> list[tuple[int, int]]:
        services.now += 10.0
        reports = await data.reports(services, cluster, fresh=False)
        lives = [reports.live(one, LOCAL, exclusive=False) for one in (first, second)]
        return [(one.free_memory, one.free_disk) for one in lives if one is not None]

    whole, less = (FREE_MIB, FREE_MIB), (FREE_MIB - 1024, FREE_MIB - 512)
    assert await free() == [whole, whole]
    services.placements.place(placement("web1.example.com", first))
    assert await free() == [less, whole]
    changes.add(second.uuid)  # a later round asks this node alone
    services.placements.release(1)
    assert await free() == [less, whole]
    changes.add(first.uuid)
    assert await free() == [whole, whole]  # its new report includes the guest


async def test_disks_on_shared_storage_are_subtracted_from_each_node() -> None:
    services, cluster = Services(), snapshot(3)
    data = NodeData(2.0, NodeChanges())
    await data.reports(services, cluster, fresh=False)
    services.placements.place(placement("web1.example.com", _node(2), "sharedfile"))
    reports = await data.reports(services, cluster, fresh=False)
    lives = [reports.live(_node(number), SHARED, exclusive=False) for number in (2, 3)]
    found = [(one.free_memory, one.free_disk) for one in lives if one is not None]
    assert found == [(FREE_MIB - 1024, FREE_MIB - 512), (FREE_MIB, FREE_MIB - 512)]


async def test_disks_that_existed_at_the_query_are_not_subtracted() -> None:
    known = sample_instance(1)
    services, cluster = Services(), snapshot(3, instances=[known])
    services.placements.place(placement(known.name, _node(2), "sharedfile"))
    data = NodeData(2.0, NodeChanges())
    reports = await data.reports(services, cluster, fresh=False)
    lives = [reports.live(_node(number), SHARED, exclusive=False) for number in (2, 3)]
    found = [(one.free_memory, one.free_disk) for one in lives if one is not None]
    assert found == [(FREE_MIB - 1024, FREE_MIB), (FREE_MIB, FREE_MIB)]


async def test_values_of_an_unchanged_node_stay_the_same_object() -> None:
    services, data, cluster = Services(), NodeData(2.0, NodeChanges()), snapshot(3)
    found = []
    for _ in range(2):
        reports = await data.reports(services, cluster, fresh=False)
        found.append(reports.live(_node(2), LOCAL, exclusive=False))
        services.now += 10.0
    assert found[0] is not None
    assert found[0] is found[1]


async def test_placement_is_kept_while_an_older_query_runs() -> None:
    services, cluster = Services(gate=asyncio.Event()), snapshot(3)
    data = NodeData(2.0, NodeChanges())
    services.placements.place(placement("web1.example.com", _node(2)))
    older = asyncio.create_task(data.reports(services, cluster, fresh=True))
    await asyncio.sleep(0)
    services.placements.release(1)
    gate, services.gate = services.gate, None
    await data.reports(services, cluster, fresh=True)
    assert gate is not None
    gate.set()
    live = (await older).live(_node(2), LOCAL, exclusive=False)
    assert live is not None
    assert live.free_memory == FREE_MIB - 1024
