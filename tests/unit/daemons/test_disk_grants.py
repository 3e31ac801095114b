"""Protected instances on DRBD: the master, the nodes' requests and the jobs, over a DRBD in memory and model nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.daemons.disk_grants import DiskGrants
from ganeti.model.names import AdminState
from ganeti.model.objects import Grant, NodeUuid
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceGrowDisk,
    OpInstanceReplaceDisks,
)
from ganeti.model.opcodes.mirrors import OpInstanceRepair
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.recovery import NodeState, Recovery
from ganeti.recovery.grants import CopyRecord
from ganeti.rpc.procedures.disks import COPY_JOINS, DISK_GRANTED
from ganeti.rpc.procedures.migration import MIGRATION_ACCEPT
from ganeti.simulation.faulty_store import Crash
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.model_drbd import Device, DrbdNode
from tests.support.units_cluster import NODES, Master, World, failed, node_name, succeeded
from tests.unit.daemons.test_recovery import Cluster
from tests.unit.units.opcodes import migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("D1", "D2")]

WEB = "web1.example.com"
ONE, TWO, THREE = NODES[0], NODES[1], NODES[2]
SETTLED_S = 10.0


class Mirrors(Cluster):
    """A cluster whose instance writes to a mirrored disk on node 3, with a copy on node 2."""

    kernels: Kernels

    @property
    def grant(self) -> Grant:
        (disk,) = self.master.instance(WEB).disks
        assert disk.grant is not None
        return disk.grant

    @property
    def current(self) -> set[NodeUuid]:
        return set(self.grant.current)

    def kernel(self, number: int) -> DrbdNode:
        return self.kernels.of(node_name(number))

    def device(self, number: int) -> Device:
        (disk,) = self.master.instance(WEB).disks
        return self.kernel(number).devices[disk.uuid]

    def write(self, number: int) -> None:
        (disk,) = self.master.instance(WEB).disks
        self.kernel(number).write(disk.uuid)

    def fail_disk(self, number: int) -> None:
        (disk,) = self.master.instance(WEB).disks
        self.kernel(number).fail_disk(disk.uuid)

    def cut(self) -> None:
        self.kernels.world.cut(node_name(2), node_name(3))

    async def begin(self, **fields: Any) -> None:
        """Protect the instance, and wait until its second copy is current."""
        given = {"disk_template": "drbd", "snode": node_name(2), "disks": [DiskRequest(size=64)]}
        await self.protect(WEB, **{**given, **fields})
        await asyncio.sleep(SETTLED_S)

    async def do(self, *ops: Any) -> None:
        """Run jobs; the copies that they took away are current again afterwards."""
        for op in ops:
            succeeded(await self.master.run(op))
        await asyncio.sleep(SETTLED_S)

    def lose_machine(self, number: int) -> None:
        """The power of a node is gone, and with it what its kernel knew."""
        name, kernel = node_name(number), self.kernel(number)
        for one in list(kernel.devices):
            kernel.drop(one, "Connecting")
            kernel.record(kernel.devices[one])
        kernel.devices.clear()
        self.lose_third()
        assert name == node_name(3)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mirrors]:
    kernels = Kernels(tmp_path)
    kernels.install(monkeypatch)
    world = World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    one = Mirrors(await Master.begin(world))
    one.kernels = kernels
    one.driver.start()
    yield one
    await one.close()


@pytest.mark.requirement("D3")
async def test_second_copy_is_current_soon_after_the_start(cluster: Mirrors) -> None:
    await cluster.begin()
    assert cluster.grant == Grant(2, frozenset((TWO, THREE)), THREE, cluster.grant.epoch)
    assert cluster.device(3).fences
    assert not cluster.device(2).fences
    assert [one.why for one in cluster.driver.status().instances] == [""]


@pytest.mark.requirement("D4", "D5")
async def test_writer_goes_on_alone_only_after_the_commit(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.cut()
    assert cluster.device(3).waits
    await asyncio.sleep(SETTLED_S)
    assert (cluster.current, cluster.grant.generation) == ({THREE}, 3)
    (shown,) = cluster.driver.status().instances
    assert "its copy on node2.example.com does not have every write yet" in shown.why
    cluster.write(3)
    cluster.kernels.world.heal()
    await asyncio.sleep(SETTLED_S)
    assert (cluster.current, cluster.grant.generation) == ({TWO, THREE}, 4)


@pytest.mark.requirement("D5")
async def test_writes_wait_while_there_is_no_master(cluster: Mirrors) -> None:
    await cluster.begin()
    nodes = dict(cluster.master.rpc.nodes)
    cluster.master.rpc.nodes.clear()
    cluster.cut()
    await asyncio.sleep(60)
    assert cluster.device(3).waits
    assert cluster.current == {TWO, THREE}
    cluster.master.rpc.nodes.update(nodes)
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {THREE}
    cluster.write(3)


@pytest.mark.requirement("D6", "D12")
async def test_instance_of_a_lost_node_runs_on_its_current_copy(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.write(3)
    cluster.lose_machine(3)
    await asyncio.sleep(60)
    assert cluster.master.instance(WEB).primary_node == TWO
    assert (cluster.current, cluster.grant.writer) == ({TWO}, TWO)
    cluster.write(2)


@pytest.mark.requirement("D5", "D6")
async def test_copy_that_was_dropped_is_never_promoted(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    cluster.write(3)
    cluster.lose_machine(3)
    await asyncio.sleep(300)
    assert cluster.master.instance(WEB).primary_node == THREE
    assert all(one.role == "Secondary" for one in cluster.kernel(2).devices.values())
    error = failed(await cluster.master.run(OpInstanceFailover(instance_name=WEB)))
    assert "lacks what was written since generation" in error[1][0]
    assert "gnt-instance failover --ignore-consistency" in error[1][0]
    forced = OpInstanceFailover(instance_name=WEB, ignore_consistency=True)
    succeeded(await cluster.master.run(forced))
    assert (cluster.current, cluster.grant.writer) == ({TWO}, TWO)


@pytest.mark.requirement("D9", "D3")
async def test_copy_on_a_node_that_returns_is_synchronised_and_current_again(
    cluster: Mirrors,
) -> None:
    await cluster.begin()
    cluster.lose_machine(3)
    await asyncio.sleep(60)
    cluster.write(2)
    cluster.third_returns()
    await asyncio.sleep(60)
    assert cluster.row(3) is NodeState.HEALTHY
    assert cluster.current == {TWO, THREE}
    (disk,) = cluster.master.instance(WEB).disks
    record = cluster.master.world.node(3).grants.content[disk.uuid]
    assert not record.is_written


@pytest.mark.requirement("D4")
async def test_protection_of_a_running_guest_begins_and_ends_with_the_parameter(
    cluster: Mirrors,
) -> None:
    await cluster.begin(beparams={"memory": 512, "recovery": "none"})
    assert cluster.master.instance(WEB).disks[0].grant is None
    await cluster.set_policy(WEB, Recovery.FAILOVER)
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {TWO, THREE}
    await cluster.set_policy(WEB, Recovery.NONE)
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {THREE}
    assert not cluster.device(3).fences
    assert not cluster.master.instance(WEB).under_lease
    cluster.cut()
    cluster.write(3)


@pytest.mark.requirement("D4")
async def test_end_of_protection_is_told_until_the_node_knows_it(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.master.rpc.fail(1, Fault.LOST_CALL)
    await cluster.set_policy(WEB, Recovery.NONE)
    await asyncio.sleep(SETTLED_S)
    assert cluster.master.instance(WEB).under_lease
    await asyncio.sleep(20)
    assert not cluster.master.instance(WEB).under_lease
    assert not cluster.device(3).fences


@pytest.mark.requirement("D1", "D6")
async def test_lost_node_whose_disk_had_failed_is_recovered_from_the_other_copy(
    cluster: Mirrors,
) -> None:
    await cluster.begin()
    cluster.fail_disk(3)
    cluster.write(3)
    await asyncio.sleep(SETTLED_S)
    assert (cluster.current, cluster.grant.writer) == ({TWO}, THREE)
    (shown,) = cluster.driver.status().instances
    assert "its copy of disk 0 on node3.example.com failed" in shown.why
    assert f"gnt-instance replace-disks --on-primary {WEB}" in shown.why
    cluster.lose_machine(3)
    await asyncio.sleep(60)
    assert cluster.master.instance(WEB).primary_node == TWO
    cluster.write(2)


@pytest.mark.requirement("D3")
@pytest.mark.parametrize(
    "ops",
    [
        [OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_primary")],
        [OpInstanceActivateDisks(instance_name=WEB)],
        [OpInstanceShutdown(instance_name=WEB), OpInstanceStartup(instance_name=WEB)],
    ],
    ids=["new parts", "activate", "restart"],
)
async def test_copy_whose_disk_failed_is_current_again_once_it_is_filled(
    cluster: Mirrors, ops: list[Any]
) -> None:
    await cluster.begin()
    cluster.fail_disk(3)
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {TWO}
    await cluster.do(*ops)
    assert (cluster.current, cluster.grant.writer) == ({TWO, THREE}, THREE)
    cluster.write(3)


@pytest.mark.requirement("D1", "D6")
async def test_copy_whose_disk_failed_does_not_start_alone(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.fail_disk(3)
    await asyncio.sleep(SETTLED_S)
    succeeded(await cluster.master.run(OpInstanceShutdown(instance_name=WEB)))
    node = cluster.master.node(2)
    await cluster.master.change(lambda draft: draft.put(replace(node, offline=True)))
    cluster.kernel(2).is_dead = True
    cluster.master.rpc.nodes.pop(node_name(2))
    error = failed(await cluster.master.run(OpInstanceStartup(instance_name=WEB)))
    assert "gnt-instance repair-disks --keep=node3.example.com" in str(error)
    assert cluster.current == {TWO}
    keep = OpInstanceRepair(instance_name=WEB, keep=node_name(3))
    succeeded(await cluster.master.run(keep))
    assert cluster.current == {THREE}


@pytest.mark.requirement("D9")
async def test_split_is_an_alarm_until_an_administrator_has_chosen_a_copy(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    cluster.write(3)
    cluster.kernels.world.copies[cluster.device(2).meta].part(
        cluster.kernels.world.new_generation()
    )
    cluster.kernels.world.heal()
    await asyncio.sleep(SETTLED_S)
    (alarm,) = cluster.driver.status().alarms
    assert alarm.startswith(f"disk 0 of {WEB}: the copies on node3.example.com and node2.")
    assert f"gnt-instance repair-disks --keep=node3.example.com {WEB}" in alarm
    assert cluster.current == {THREE}
    await cluster.do(OpInstanceRepair(instance_name=WEB, keep=node_name(3)))
    await asyncio.sleep(SETTLED_S)
    assert cluster.driver.status().alarms == ()
    assert cluster.current == {TWO, THREE}


@pytest.mark.requirement("D9")
async def test_copy_with_a_record_of_later_writes_is_an_alarm(cluster: Mirrors) -> None:
    await cluster.begin()
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    (disk,) = cluster.master.instance(WEB).disks
    records = cluster.master.world.node(2).grants.content
    records[disk.uuid] = CopyRecord(9, frozenset((TWO,)), is_written=True)
    cluster.kernels.world.heal()
    await asyncio.sleep(SETTLED_S)
    (alarm,) = cluster.driver.status().alarms
    assert "split brain" in alarm
    assert cluster.current == {THREE}


JOBS: dict[str, list[Any]] = {
    "failover": [OpInstanceFailover(instance_name=WEB)],
    "migrate": [migrate(WEB)],
    "new parts": [OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_secondary")],
    "own parts": [OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_primary")],
    "new secondary": [
        OpInstanceReplaceDisks(
            instance_name=WEB, mode="replace_new_secondary", remote_node=node_name(1)
        )
    ],
    "grow": [OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=32)],
    "activate": [OpInstanceActivateDisks(instance_name=WEB)],
    "restart": [OpInstanceShutdown(instance_name=WEB), OpInstanceStartup(instance_name=WEB)],
    "stopped": [
        OpInstanceShutdown(instance_name=WEB),
        OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=32),
        OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_secondary"),
        OpInstanceFailover(instance_name=WEB),
        OpInstanceStartup(instance_name=WEB),
    ],
}


@pytest.mark.requirement("D2", "D3", "D4")
@pytest.mark.parametrize("ops", JOBS.values(), ids=JOBS.keys())
async def test_jobs_keep_the_grant_of_the_writer_and_both_copies(
    cluster: Mirrors, ops: list[Any]
) -> None:
    await cluster.begin()
    await cluster.do(*ops)
    instance = cluster.master.instance(WEB)
    assert instance.admin_state is AdminState.UP
    assert cluster.grant.writer == instance.primary_node
    assert cluster.current == set(instance.all_nodes)
    number = NODES.index(instance.primary_node) + 1
    assert cluster.device(number).fences
    cluster.write(number)


@pytest.mark.requirement("D3", "D6")
@pytest.mark.parametrize(
    "ops",
    [
        [migrate(WEB)],
        [OpInstanceActivateDisks(instance_name=WEB, wait_for_sync=True), migrate(WEB)],
    ],
    ids=["alone", "after synchronisation"],
)
async def test_migration_right_after_a_disconnection_waits_until_the_copy_is_current(
    cluster: Mirrors, ops: list[Any]
) -> None:
    await cluster.begin()
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    cluster.write(3)
    assert cluster.current == {THREE}
    cluster.kernels.world.heal()
    job = await cluster.master.queue.submit(ops)
    succeeded(await cluster.master.final(job))
    assert cluster.master.instance(WEB).primary_node == TWO
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {TWO, THREE}


@pytest.mark.requirement("D6")
async def test_guest_whose_copy_does_not_become_current_is_not_sent(
    cluster: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskGrants, "letting_join", lambda *_: nullcontext())
    await cluster.begin()
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    cluster.kernels.world.heal()
    _name, (text, _code) = failed(await cluster.master.run(migrate(WEB)))
    assert "its copy on node2.example.com does not have every write yet" in text
    assert MIGRATION_ACCEPT.name not in [one.procedure for one in cluster.master.rpc.calls]
    assert cluster.master.instance(WEB).primary_node == THREE


@pytest.mark.requirement("D5")
async def test_start_without_the_other_node_goes_on_with_one_copy(cluster: Mirrors) -> None:
    await cluster.begin()
    await cluster.do(OpInstanceShutdown(instance_name=WEB))
    assert (cluster.current, cluster.grant.writer) == ({TWO, THREE}, None)
    node = cluster.master.node(2)
    await cluster.master.change(lambda draft: draft.put(replace(node, offline=True)))
    cluster.kernel(2).is_dead = True
    cluster.master.rpc.nodes.pop(node_name(2))
    await cluster.do(OpInstanceStartup(instance_name=WEB))
    assert (cluster.current, cluster.grant.writer) == ({THREE}, THREE)
    cluster.write(3)


@pytest.mark.requirement("D3", "D5")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_call_that_goes_wrong_leaves_no_write_waiting(
    cluster: Mirrors, number: int, fault: Fault
) -> None:
    """The writer learns that it is alone, the copy that it joins, and the writer again."""
    await cluster.begin()
    cluster.master.rpc.reset()
    cluster.master.rpc.fail(number, fault)
    cluster.cut()
    await asyncio.sleep(2 * SETTLED_S)
    cluster.write(3)
    cluster.kernels.world.heal()
    await asyncio.sleep(2 * SETTLED_S)
    assert cluster.current == {TWO, THREE}
    made = [call.procedure for call in cluster.master.rpc.changing_calls]
    assert set(made) == {DISK_GRANTED.name, COPY_JOINS.name}


@pytest.mark.requirement("D3", "D5", "D8")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_master_that_dies_at_a_commit_leaves_no_write_waiting(
    cluster: Mirrors, number: int, *, written: bool
) -> None:
    """The first commit drops the copy, the second counts it again."""
    await cluster.begin()
    cluster.master.store.inject(Crash(written=written), after=number)
    cluster.cut()
    await asyncio.sleep(SETTLED_S)
    if number > 1:
        cluster.write(3)
        cluster.kernels.world.heal()
        await asyncio.sleep(SETTLED_S)
    await cluster.change_master()
    await asyncio.sleep(2 * SETTLED_S)
    assert not cluster.device(3).waits
    cluster.write(3)
    cluster.kernels.world.heal()
    await asyncio.sleep(SETTLED_S)
    assert cluster.current == {TWO, THREE}
