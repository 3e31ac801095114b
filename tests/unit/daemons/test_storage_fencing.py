"""The storage of instances refuses a lost node, and accepts it when it has returned; in virtual time over model nodes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.api.audit import MasterAudit
from ganeti.base.clock import SystemClock
from ganeti.base.errors import StorageError
from ganeti.daemons.storage_fencing import StorageFencing
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.fencing import OpNodeFenceTest
from ganeti.model.opcodes.instance import OpInstanceStartup
from ganeti.model.recovery import FenceMethod, NodeState
from ganeti.recovery.power import StorageResult
from ganeti.rpc.procedures.disks import FenceArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.virtual_time import LoopClock
from tests.support.units_cluster import Master, World, failed, node_name, succeeded
from tests.unit.daemons.test_recovery import PROTECTED, THIRD, Cluster, to_second
from tests.unit.units.opcodes import create
from tests.unit.units.test_external_disks import ExternalNode

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("D7")]

WEB, DB = "web1.example.com", "db1.example.com"


class Shelf(ExternalNode):
    """A node whose provider of disks can refuse nodes."""

    refuses: str = ""
    """Why it does not."""
    asked: int = 0

    def on_blockdev_fence(self, args: FenceArgs) -> Nothing:
        self.asked += 1
        if self.refuses:
            raise StorageError(self.refuses)
        return super().on_blockdev_fence(args)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    world = World(node_type=Shelf, enabled_disk_templates=("ext", "sharedfile", "diskless"))
    world.node(1).allocators["hail"] = to_second
    one = Cluster(await Master.begin(world))
    one.outlet.works = False
    methods = f"{FenceMethod.POWER} {FenceMethod.STORAGE}"
    node = one.master.node(3)

    def fence_by_storage(draft: Any) -> None:
        draft.put(replace(draft.nodes[node.uuid], ndparams={"fence_methods": methods}))

    await one.master.change(fence_by_storage)
    one.driver.start()
    yield one
    await one.close()


def shelf(cluster: Cluster, number: int = 1) -> Shelf:
    found = cluster.master.world.node(number)
    assert isinstance(found, Shelf)
    return found


async def add(cluster: Cluster, name: str, template: str = "ext") -> str:
    """Create a protected instance that runs on node 3; its UUID."""
    params = {"provider": "shelf"} if template == "ext" else {}
    disks = [] if template == "diskless" else [DiskRequest(size=512, params=params)]
    op = create(name, pnode=node_name(3), beparams=PROTECTED, disk_template=template, disks=disks,
                no_install=True, os_type=None)  # fmt: skip
    succeeded(await cluster.master.run(op))
    succeeded(await cluster.master.run(OpInstanceStartup(instance_name=name)))
    return cluster.master.instance(name).uuid


def fencing(cluster: Cluster) -> StorageFencing:
    return StorageFencing(cluster.master.config, cluster.master.rpc, LoopClock(), cluster.audit)


def disk_of(cluster: Cluster, name: str) -> str:
    return cluster.master.instance(name).disks[0].uuid


async def test_instance_starts_elsewhere_once_its_storage_refuses_the_lost_node(
    cluster: Cluster,
) -> None:
    await add(cluster, WEB)
    await asyncio.sleep(10)
    cluster.lose_third(WEB)
    await cluster.fenced()
    assert cluster.outlet.cuts == [THIRD], "its power comes first"
    ((name, result),) = cluster.audit.attempts
    assert (name, result.instances) == (node_name(3), (cluster.master.instance(WEB).uuid,))
    row = cluster.master.node(3).recovery
    assert row is not None
    assert (row.by_storage, row.is_off) == (True, False)
    fenced_disks = {(disk_of(cluster, WEB), node_name(3))}
    assert shelf(cluster).fenced_disks == fenced_disks
    await cluster.submitted(2)
    await asyncio.sleep(30)
    assert cluster.master.instance(WEB).primary_node != THIRD
    assert shelf(cluster).fenced_disks == fenced_disks

    cluster.third_returns()
    async with asyncio.timeout(120):
        while cluster.row(3) is not NodeState.HEALTHY:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.1)
    assert shelf(cluster).fenced_disks == set()
    assert cluster.master.world.node(3).guests == {}


async def test_instance_whose_storage_cannot_refuse_the_node_stays_down(cluster: Cluster) -> None:
    await add(cluster, WEB)
    await add(cluster, DB, "diskless")
    await asyncio.sleep(10)
    cluster.lose_third(DB)
    await cluster.fenced()
    await asyncio.sleep(60)
    assert cluster.master.instance(WEB).primary_node != THIRD
    assert cluster.master.instance(DB).primary_node == THIRD
    status = cluster.driver.status()
    node = next(one for one in status.nodes if one.name == node_name(3))
    assert "db1.example.com: storage of template diskless cannot refuse the writes" in node.why
    assert any(f"gnt-node fenced --confirm {node_name(3)}" in one for one in status.alarms)


async def test_node_stays_stuck_while_its_storage_does_not_refuse_it(cluster: Cluster) -> None:
    await add(cluster, WEB)
    await asyncio.sleep(10)
    for number in (1, 2):
        shelf(cluster, number).refuses = "fence: exit status 1: the array is out of reach"
    cluster.lose_third(WEB)
    await asyncio.sleep(20)
    assert cluster.row(3) is NodeState.STUCK
    (alarm,) = cluster.driver.status().alarms
    assert "storage: web1.example.com: node1.example.com: fence: exit status 1" in alarm
    assert f"gnt-node fenced --confirm {node_name(3)}" in alarm
    for number in (1, 2):
        shelf(cluster, number).refuses = ""
    await cluster.fenced()


async def test_next_node_is_asked_if_one_does_not_answer(cluster: Cluster) -> None:
    await add(cluster, WEB)
    del cluster.master.rpc.nodes[node_name(1)]
    found = await fencing(cluster).fence(THIRD)
    assert found.instances == (cluster.master.instance(WEB).uuid,)
    assert (shelf(cluster, 1).asked, shelf(cluster, 2).asked) == (0, 1)
    assert shelf(cluster, 3).asked == 0


async def test_stopped_instance_is_not_at_risk(cluster: Cluster) -> None:
    op = create(WEB, pnode=node_name(3), beparams=PROTECTED, disk_template="ext", start=False,
                disks=[DiskRequest(size=512, params={"provider": "shelf"})], no_install=True, os_type=None)  # fmt: skip
    succeeded(await cluster.master.run(op))
    found = await fencing(cluster).fence(THIRD)
    assert (found.instances, found.detail) == ((), f"no protected instance runs on {node_name(3)}")


async def test_fence_test_says_which_storage_would_refuse_the_node(cluster: Cluster) -> None:
    master, test = cluster.master, OpNodeFenceTest(node_name=node_name(3))
    assert "no protected instance runs on it" in succeeded(await master.run(test))["plan"]
    await add(cluster, WEB)
    await add(cluster, DB, "diskless")
    result = succeeded(await master.run(test))
    assert (result["device"], result["is_on"], result["methods"]) == (
        "",
        None,
        ["power", "storage"],
    )
    why = "storage of template diskless cannot refuse the writes of one node"
    assert result["storage"] == {WEB: "", DB: why}
    assert (
        "the storage of 1 of 2 protected instances refuses its writes; the others stay down"
        in result["plan"]
    )
    assert shelf(cluster).fenced_disks == set()
    refused = failed(await master.run(OpNodeFenceTest(node_name=node_name(3), off=True)))[1][0]
    assert "neither a fence agent nor an out-of-band program" in refused


def test_attempt_is_in_the_audit_log(tmp_path: Path) -> None:
    audit = MasterAudit(tmp_path / "audit", SystemClock())
    audit.storage_fenced("node3", StorageResult(("uuid",), "it refuses the writes of node3"), 1.25)
    audit.storage_fenced("node3", StorageResult((), "the array is out of reach"), 0.5)
    records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(one["method"], one["path"], one["status"], one["why"]) for one in records] == [
        ("fence by storage", "node node3", "done", "it refuses the writes of node3"),
        ("fence by storage", "node node3", "failed", "the array is out of reach"),
    ]
