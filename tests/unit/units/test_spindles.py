"""Exclusive storage: each disk has physical volumes of its node for itself; the driver's part is in `storage/lvm`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import disk_spec
from ganeti.model.objects import Instance
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.instance_changes import OpInstanceRecreateDisks
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.opcodes.storage import OpClusterRepairDiskSizes
from ganeti.rpc.procedures.disks import DiskArgs, DiskInfo
from ganeti.rpc.procedures.host import NodeInfo, NodeInfoArgs, VerifyArgs, VerifyReport
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import path_of
from ganeti.units.cluster.findings import Finding, policy_findings
from ganeti.units.demand import Demand
from ganeti.units.instance.policy import policy_breaches
from tests.support.units_cluster import NODES, Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time

DEVICES = 4
EXCLUSIVE = OpGroupSetParams(group_name="default", ndparams={"exclusive_storage": True})


class SpindleNode(ModelNode):
    """A node whose volume group has four physical volumes."""

    def on_node_info(self, args: NodeInfoArgs) -> NodeInfo:
        info, used = super().on_node_info(args), sum(self.spindles.values())
        storage = [
            replace(one, devices=DEVICES, free_devices=DEVICES - used) for one in info.storage
        ]
        return replace(info, storage=storage)

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        assert args.disk.exclusive is bool(args.disk.params.get("spindles"))
        self.spindles[path_of(args.disk)] = args.disk.params.get("spindles", 0)
        return super().on_blockdev_create(args)

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        return replace(super().on_blockdev_info(args), spindles=self.said_spindles)

    def on_node_verify(self, args: VerifyArgs) -> VerifyReport:
        report = super().on_node_verify(args)
        return replace(report, sharing_problems=["/dev/sda is shared"] if args.exclusive else [])

    @property
    def spindles(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__.setdefault("_spindles", {})
        return found

    said_spindles = 0
    """What is said of each disk when one is looked at."""


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    templates = ("plain", "drbd", "diskless", "sharedfile")
    world = World(node_type=SpindleNode, enabled_disk_templates=templates)
    for number in (1, 2, 3):
        world.node(number).groups = {"xenvg": world.node(number).local}
    one = await Master.begin(world)
    yield one
    await one.end()


def wanted(*spindles: int | None, name: str = NAME, **fields: Any) -> Any:
    disks = [DiskRequest(size=512, spindles=count) for count in spindles]
    return create(name, **{"disk_template": "plain", "disks": disks, **fields})


def why(view: Any) -> str:
    return str(failed(view)[1][0])


def findings(master: Master) -> list[Finding]:
    snapshot = master.snapshot
    return list(policy_findings(snapshot, snapshot.instances.values()))


async def test_disks_have_spindles_for_themselves_and_no_more_than_there_are(
    master: Master,
) -> None:
    assert "requires exclusive storage" in why(await master.run(wanted(2)))
    succeeded(await master.run(EXCLUSIVE))
    assert "the disk has no number of spindles" in why(await master.run(wanted(None)))
    assert "must be from 1 to" in why(await master.run(wanted(-1)))
    succeeded(await master.run(wanted(2, 1)))
    instance = master.instance(NAME)
    assert [disk.spindles for disk in instance.disks] == [2, 1]
    spec = disk_spec(master.snapshot, instance, 0)
    assert (spec.exclusive, spec.params["spindles"]) == (True, 2)
    refused = why(await master.run(wanted(2, name="b.example.com")))
    assert "has 1 unused spindles in xenvg but needs 2" in refused
    added = [["add", {"size": "64", "spindles": "1"}]]
    succeeded(await master.run(modify(disks=added)))
    assert master.instance(NAME).disks[2].spindles == 1
    changed = [[0, {"spindles": "1"}]]
    assert "cannot change" in why(await master.run(modify(disks=changed)))
    other = wanted(1, name="b.example.com", pnode="node2.example.com")
    succeeded(await master.run(other))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"disk_template": "drbd", "snode": "node2.example.com", "disks": [{"size": 512}]},
            "disks of template drbd share devices; use plain",
        ),
        ({"disk_template": "sharedfile", "disks": [{"size": 512}]}, ""),
        ({"disk_template": "diskless", "disks": [], "no_install": True}, ""),
    ],
)
async def test_templates_that_share_the_devices_of_a_node_are_refused(
    master: Master, fields: dict[str, Any], problem: str
) -> None:
    succeeded(await master.run(EXCLUSIVE))
    disks = [DiskRequest(**one) for one in fields["disks"]]
    view = await master.run(create(**{**fields, "disks": disks}))
    assert problem in why(view) if problem else succeeded(view)


async def test_lost_disks_are_recreated_with_spindles(master: Master) -> None:
    succeeded(await master.run(wanted(None, start=False)))
    succeeded(await master.run(EXCLUSIVE))
    lost = master.world.node(1)
    lost.local.disks.clear()
    lost.local.owners.clear()
    again = OpInstanceRecreateDisks(instance_name=NAME, disks=[[0, {"spindles": 3}]])
    assert "spindles" in why(await master.run(replace(again, disks=[0])))
    succeeded(await master.run(again))
    assert master.instance(NAME).disks[0].spindles == 3


async def test_what_was_made_before_is_reported_and_counted_afterwards(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded(await master.run(wanted(None)))
    assert findings(master) == []
    succeeded(await master.run(EXCLUSIVE))
    found = [one for one in findings(master) if "MISSINGCFG" in one.code]
    assert [(one.name, "repair-disk-sizes" in one.text) for one in found] == [(NAME, True)]
    monkeypatch.setattr(SpindleNode, "said_spindles", 2)
    changed = succeeded(await master.run(OpClusterRepairDiskSizes()))
    assert changed == [[NAME, 0, "spindles", 2]]
    assert master.instance(NAME).disks[0].spindles == 2
    assert succeeded(await master.run(OpClusterRepairDiskSizes())) == []
    assert [one for one in findings(master) if "CFG" in one.code] == []


async def test_policies_and_allocators_count_the_spindles_of_disks(master: Master) -> None:
    succeeded(await master.run(EXCLUSIVE))
    succeeded(await master.run(wanted(2, 1)))
    instance, cluster = master.instance(NAME), master.snapshot.cluster
    demand = Demand.of(cluster, instance)
    assert [disk["spindles"] for disk in demand.message()["disks"]] == [2, 1]
    assert (demand.size().spindle_use, demand.size(exclusive=True).spindle_use) == (1, 3)
    group = next(iter(master.snapshot.groups.values()))
    tight = replace(group, ipolicy={"minmax": [{"max": {"spindle-use": 2}}]})
    assert "spindle-use 3 is not between 0 and 2" in policy_breaches(cluster, tight, instance)[0]
    unknown: Instance = replace(instance, disks=(replace(instance.disks[0], params={}),))
    assert policy_breaches(cluster, tight, unknown) == []
    two = wanted(2, name="b.example.com", pnode=None, iallocator="hail")
    succeeded(await master.run(two))
    assert master.instance("b.example.com").primary_node != NODES[0]


async def test_it_is_a_property_of_groups_and_not_of_single_nodes(master: Master) -> None:
    for number in (1, 2):
        name = f"node{number}.example.com"
        alone = OpNodeSetParams(node_name=name, ndparams={"exclusive_storage": True})
        assert "is the same for all nodes of a group" in why(await master.run(alone))
