"""Maintenance of a node: everything leaves it, recovery ignores it, and everything returns."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import NodeRow
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceShutdown
from ganeti.model.opcodes.maintenance import OpNodeMaintenanceBegin, OpNodeMaintenanceEnd
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.recovery import NodeState
from ganeti.simulation.faulty_store import Crash
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import create

pytestmark = pytest.mark.virtual_time
NODE = "node3.example.com"


def begin(**fields: Any) -> OpNodeMaintenanceBegin:
    return OpNodeMaintenanceBegin(**{"node_name": "node3", "iallocator": "hail", **fields})


def end(**fields: Any) -> OpNodeMaintenanceEnd:
    return OpNodeMaintenanceEnd(**{"node_name": "node3", **fields})


async def with_instances(master: Master, **templates: str) -> None:
    for name, template in templates.items():
        wanted = create(f"{name}.example.com", disk_template=template, pnode=NODE,
                        beparams={"memory": 100}, disks=[] if template == "diskless" else
                        create().disks)  # fmt: skip
        succeeded(await master.run(wanted))


async def ends_of_jobs(master: Master, op: Any) -> list[JobStatus]:
    """Run the opcode; how the jobs ended that it submitted."""
    result = succeeded(await master.run(op))
    return [(await master.final(job_id)).status for _accepted, job_id in result["jobs"]]


def where(master: Master, name: str) -> str:
    instance = master.instance(f"{name}.example.com")
    return master.snapshot.nodes[instance.primary_node].name


async def test_maintenance_moves_everything_off_and_brings_it_back(master: Master) -> None:
    await with_instances(master, web1="sharedfile", web2="diskless")
    succeeded(await master.run(OpInstanceShutdown(instance_name="web2.example.com")))
    assert await ends_of_jobs(master, begin()) == [JobStatus.SUCCESS] * 2
    node = master.node(3)
    assert node.maintenance is not None
    assert node.maintenance.has_drained
    assert node.drained
    assert {where(master, "web1"), where(master, "web2")}.isdisjoint({NODE})
    away = [one.name for one in master.snapshot.moved_away_from(node)]
    assert away == ["web1.example.com", "web2.example.com"]
    assert await ends_of_jobs(master, end(failback=True)) == [JobStatus.SUCCESS] * 3
    node = master.node(3)
    assert node.maintenance is None
    assert not node.drained
    assert where(master, "web1") == where(master, "web2") == NODE
    assert node.moved_away == ()
    master.check()


async def test_end_without_failback_leaves_instances_and_forgets_them(master: Master) -> None:
    await with_instances(master, web1="sharedfile")
    await ends_of_jobs(master, begin())
    assert await ends_of_jobs(master, end()) == []
    assert master.node(3).moved_away == ()
    assert where(master, "web1") != NODE
    text, code = failed(await master.run(end(failback=True)))[1]
    assert code == "wrong_state"
    assert "node3.example.com is not in maintenance, and no instance has left it" in text


async def test_node_that_was_drained_stays_drained(master: Master) -> None:
    succeeded(await master.run(OpNodeSetParams(node_name=NODE, drained=True)))
    await ends_of_jobs(master, begin())
    await ends_of_jobs(master, begin())
    await ends_of_jobs(master, end())
    assert master.node(3).drained


async def test_instances_of_one_node_are_shut_down_only_on_request(master: Master) -> None:
    await with_instances(master, web1="file", web2="file", web3="sharedfile")
    succeeded(await master.run(OpInstanceShutdown(instance_name="web2.example.com")))
    text, code = failed(await master.run(begin()))[1]
    assert code == "wrong_state"
    assert "only node3.example.com has the disks of web1.example.com: pass --shutdown" in text
    assert master.node(3).maintenance is None
    assert await ends_of_jobs(master, begin(shutdown=True)) == [JobStatus.SUCCESS] * 2
    assert master.instance("web1.example.com").admin_state is AdminState.DOWN
    assert await ends_of_jobs(master, end()) == [JobStatus.SUCCESS]
    assert master.instance("web1.example.com").admin_state is AdminState.UP
    assert master.instance("web2.example.com").admin_state is AdminState.DOWN
    master.check()


async def test_instance_that_cannot_migrate_fails_over_only_on_request(master: Master) -> None:
    wanted = create(pnode=NODE, beparams={"memory": 100, "always_failover": True})
    succeeded(await master.run(wanted))
    text, _code = failed(await master.run(begin()))[1]
    assert "web1.example.com cannot leave node3.example.com live" in text
    assert "--allow-failover" in text
    assert await ends_of_jobs(master, begin(allow_failover=True)) == [JobStatus.SUCCESS]
    assert where(master, "web1") != NODE
    view = await master.run(end(failback=True))
    assert succeeded(view) == {"jobs": []}
    assert "gnt-instance failover web1.example.com brings it back" in said(view)


async def test_departure_stops_at_the_first_problem_and_continues_when_repeated(
    master: Master,
) -> None:
    await with_instances(master, web1="sharedfile", web2="sharedfile", web3="sharedfile")
    master.rpc.fail(1, Fault.REFUSED)
    ends = await ends_of_jobs(master, begin())
    assert set(ends) == {JobStatus.ERROR}
    assert where(master, "web2") == where(master, "web3") == NODE
    assert set(await ends_of_jobs(master, begin())) == {JobStatus.SUCCESS}
    assert len(master.node(3).moved_away) == 3


async def test_end_waits_for_the_node(master: Master) -> None:
    await ends_of_jobs(master, begin())
    silent = master.rpc.nodes.pop(NODE)
    text = failed(await master.run(end(wait=10)))[1][0]
    assert "does not answer" in text
    assert "stays in maintenance" in text
    assert master.node(3).maintenance is not None
    job = asyncio.ensure_future(master.run(end(wait=60)))
    await asyncio.sleep(30)
    master.rpc.nodes[NODE] = silent
    assert "waiting for node3.example.com" in said(await job)
    assert master.node(3).maintenance is None


async def test_only_what_can_return_returns(master: Master) -> None:
    await with_instances(master, web1="sharedfile", web2="sharedfile", web3="sharedfile")
    await ends_of_jobs(master, begin())
    succeeded(await master.run(OpInstanceRemove(instance_name="web1.example.com")))
    assert await ends_of_jobs(master, end(failback=True)) == [JobStatus.SUCCESS] * 3
    master.check()


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (begin(node_name="node1"), "is the master"),
        (begin(node_name="node9"), "node9"),
        (end(), "is not in maintenance"),
        (end(wait=-1), "must not be negative"),
    ],
)
async def test_wrong_request_is_refused(master: Master, op: Any, text: str) -> None:
    assert text in failed(await master.run(op))[1][0]


async def test_offline_node_is_refused(master: Master) -> None:
    succeeded(await master.run(OpNodeSetParams(node_name=NODE, offline=True)))
    assert "marked offline" in failed(await master.run(begin()))[1][0]
    assert master.node(3).offline


@pytest.mark.parametrize("number", range(5))
async def test_crash_at_any_commit_keeps_what_the_end_needs(number: int) -> None:
    for fault in (Crash(written=False), Crash(written=True)):
        master = await Master.begin(World())
        await master.change(
            lambda draft: draft.put(replace(draft.nodes[NODES[2]], master_candidate=True))
        )
        await master.submit(begin())
        master.store.inject(fault, after=number)
        await master.is_dead_after_a_while()
        master = await master.restart()
        await master.idle()
        await ends_of_jobs(master, begin())
        assert master.node(3).drained
        await ends_of_jobs(master, end())
        assert not master.node(3).drained
        await master.end()


async def test_instances_of_a_fenced_node_return_if_their_policy_says_so(master: Master) -> None:
    for name, failback in (("web1", True), ("web2", False)):
        policy = {"memory": 100, "recovery": "failover", "recovery_failback": failback}
        succeeded(await master.run(create(f"{name}.example.com", pnode=NODE, beparams=policy)))
    uuid = NODES[2]
    row = NodeRow(uuid, NodeState.FENCED, epoch=1, is_off=True)
    await master.change(lambda draft: draft.put(replace(draft.nodes[uuid], recovery=row)))
    master.world.node(3).guests.clear()
    mark = OpNodeSetParams(node_name=NODE, offline=True, force=True)
    succeeded(await master.run(mark))
    for name in ("web1", "web2"):
        fail_over = OpInstanceFailover(instance_name=f"{name}.example.com", target_node="node2")
        succeeded(await master.run(fail_over))
    succeeded(await master.run(replace(mark, offline=False)))
    assert await ends_of_jobs(master, end(failback=True, wait=0)) == [JobStatus.SUCCESS] * 2
    assert where(master, "web1") == NODE
    assert where(master, "web2") == "node2.example.com"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    made.install(monkeypatch)
    return made


async def test_mirrored_instance_goes_to_its_copy_and_back(kernels: Kernels) -> None:
    del kernels
    master = await Master.begin(
        World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    )
    mirrored = create(pnode=NODE, snode="node2.example.com", disk_template="drbd",
                      beparams={"memory": 100})  # fmt: skip
    succeeded(await master.run(mirrored))
    assert await ends_of_jobs(master, begin()) == [JobStatus.SUCCESS]
    assert where(master, "web1") == "node2.example.com"
    text = failed(await master.run(begin(node_name="node2")))[1][0]
    assert "its secondary node node3.example.com is in maintenance, too" in text
    both = await asyncio.gather(*(master.run(end(failback=True)) for _ in range(2)))
    ids = [job_id for view in both for _accepted, job_id in succeeded(view)["jobs"]]
    ends = [(await master.final(job_id)).status for job_id in ids]
    assert ends.count(JobStatus.SUCCESS) == 2
    assert where(master, "web1") == NODE
    await master.end()
