"""Operations that submit jobs for many instances: every call failed in turn, the master killed at every commit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import JobStatus
from ganeti.model.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
    OpInstanceChangeGroup,
)
from ganeti.model.opcodes.moving import OpNodeEvacuate
from ganeti.model.opcodes.placing import OpClusterBalance, OpInstanceMultiAlloc
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, succeeded
from tests.unit.units.opcodes import create

pytestmark = pytest.mark.virtual_time

COMMITS, ACTS = 12, 8


async def _on_node(master: Master, number: int) -> None:
    for name in ("web1", "web2"):
        wanted = create(f"{name}.example.com", pnode=f"node{number}.example.com")
        succeeded(await master.run(wanted))


async def _evacuable(master: Master) -> None:
    await _on_node(master, 3)


async def _uneven(master: Master) -> None:
    await _on_node(master, 1)


async def _two_groups(master: Master) -> None:
    succeeded(await master.run(OpGroupAdd(group_name="other")))
    succeeded(await master.run(OpGroupAssignNodes(group_name="other", nodes=["node3"])))
    await _on_node(master, 1)


async def _nothing(master: Master) -> None:
    del master


def _wishes(*names: str) -> OpInstanceMultiAlloc:
    wishes = [create(f"{name}.example.com", pnode=None) for name in names]
    return OpInstanceMultiAlloc(instances=wishes, iallocator="hail")


@dataclass(frozen=True)
class Scenario:
    """What is there before, and what is asked for."""

    prepare: Callable[[Master], Awaitable[None]]
    op: Any

    def again(self, master: Master) -> Any:
        """The same for what is not done yet; None if nothing is left."""
        if not isinstance(self.op, OpInstanceMultiAlloc):
            return self.op
        known = {one.name for one in master.snapshot.instances.values()}
        left = [one for one in self.op.instances if one.instance_name not in known]
        return replace(self.op, instances=left) if left else None


SCENARIOS = {
    "node-evacuate": Scenario(
        _evacuable, OpNodeEvacuate(node_name="node3", mode="all", iallocator="hail")
    ),
    "group-evacuate": Scenario(
        _two_groups, OpGroupEvacuate(group_name="default", iallocator="hail")
    ),
    "change-group": Scenario(
        _two_groups,
        OpInstanceChangeGroup(instance_name="web1.example.com", iallocator="hail"),
    ),
    "balance": Scenario(_uneven, OpClusterBalance(iallocator="hail")),
    "multi-alloc": Scenario(_nothing, _wishes("web1", "web2")),
}

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


async def finish(master: Master, scenario: Scenario) -> None:
    """Ask once more for what is left; everything is in order then."""
    op = scenario.again(master)
    if op is not None:
        result = succeeded(await master.run(op))
        for _accepted, job_id in result["jobs"]:
            succeeded(await master.final(job_id))
    await master.nothing_is_left()
    master.check()


async def check_and_finish(master: Master, scenario: Scenario) -> None:
    """Nothing is held and no guest runs twice, whatever failed; what is left can be done."""
    await master.idle()
    master.world.check_no_guest_runs_twice()
    master.rpc.forget_faults()
    master.store.forget_faults()
    await master.nothing_is_left()
    master.check_nothing_is_held()
    await finish(master, scenario)


@pytest.mark.sampled(8)
@pytest.mark.requirement("G11", "F23")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, ACTS + 1))
@each_scenario
async def test_any_call_may_fail_and_the_rest_can_be_done_later(
    master: Master, scenario: Scenario, number: int, fault: Fault
) -> None:
    await scenario.prepare(master)
    master.rpc.reset()
    master.rpc.fail(number, fault)
    await master.run(scenario.op)
    await check_and_finish(master, scenario)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G11")
@pytest.mark.parametrize("number", range(COMMITS))
@each_scenario
async def test_any_commit_may_be_refused_and_the_rest_can_be_done_later(
    master: Master, scenario: Scenario, number: int
) -> None:
    await scenario.prepare(master)
    job_id = await master.submit(scenario.op)
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await check_and_finish(master, scenario)


@pytest.mark.sampled(6)
@pytest.mark.requirement("G11")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
@each_scenario
async def test_a_master_that_dies_at_any_commit_leaves_the_rest_to_the_next(
    world: World, scenario: Scenario, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await scenario.prepare(master)
    await master.submit(scenario.op)
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await check_and_finish(after, scenario)
    finally:
        await after.end()


GROUP_CHANGES = [
    OpGroupAdd(group_name="new"),
    OpGroupRename(group_name="other", new_name="renamed"),
    OpGroupSetParams(group_name="other", alloc_policy="unallocable"),
    OpGroupAssignNodes(group_name="other", nodes=["node2", "node3"]),
    OpGroupRemove(group_name="other"),
]


def groups(master: Master) -> tuple[Any, ...]:
    """What the configuration says about groups, without serial numbers and times."""
    named = {one.name: one.alloc_policy for one in master.snapshot.groups.values()}
    members = {
        node.name: master.snapshot.groups[node.group].name
        for node in master.snapshot.nodes.values()
    }
    return named, members


@pytest.mark.sampled(8)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("op", GROUP_CHANGES, ids=str)
async def test_a_change_of_groups_is_done_wholly_or_not_at_all(
    world: World, op: Any, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    succeeded(await master.run(OpGroupAdd(group_name="other")))
    before = groups(master)
    job_id = await master.submit(op)
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        after.check_nothing_is_held()
        view = after.queue.view(job_id)
        assert view is not None
        now = groups(after)
        if view.status is JobStatus.SUCCESS:
            assert now != before
        elif now == before:
            succeeded(await after.run(op))
            assert groups(after) != before
    finally:
        await after.end()
