"""Automatic recovery as the master carries it out: rows, jobs, heartbeats, in virtual time over model nodes."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ExecError, PrereqError, Refused, RpcFailed
from ganeti.config.transaction import Draft
from ganeti.daemons.master import is_locked
from ganeti.daemons.recovery import Mastership, RecoveryDriver
from ganeti.daemons.recovery_jobs import SOURCE
from ganeti.daemons.storage_fencing import StorageFencing
from ganeti.daemons.watched import Watching, is_needed
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.objects import NodeUuid
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.maintenance import OpNodeMaintenanceBegin, OpNodeMaintenanceEnd
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.recovery import FenceMethod, GuestFault, NodeState, Recovery
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.power import PowerResult, StorageResult
from ganeti.recovery.times import reset_by
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.procedures.programs import AllocatorOutput
from ganeti.rpc.procedures.recovery import HEARTBEAT
from ganeti.simulation.nodes.state import Guest
from ganeti.simulation.virtual_time import LoopClock
from ganeti.units.node.modify import LUNodeSetParams
from tests.support.units_cluster import NODES, Master, World, failed, node_name, succeeded
from tests.unit.units.opcodes import create

pytestmark = [pytest.mark.virtual_time]

THIRD = NODES[2]
PROTECTED = {"memory": 512, "recovery": "failover"}


@dataclass
class Outlet:
    """Switches the model nodes off, or fails to."""

    works: bool = True
    cuts: list[NodeUuid] = field(default_factory=list)

    async def cut(self, node: NodeUuid) -> PowerResult:
        self.cuts.append(node)
        await asyncio.sleep(1)
        return PowerResult(self.works, "off" if self.works else "no answer")


@dataclass
class Audit:
    """The record of attempts to fence by storage."""

    attempts: list[tuple[str, StorageResult]] = field(default_factory=list)

    def storage_fenced(self, node: str, result: StorageResult, seconds: float) -> None:
        assert seconds >= 0
        self.attempts.append((node, result))


@dataclass
class Cluster:
    """A master with its driver; a new master gets a new driver."""

    master: Master
    outlet: Outlet = field(default_factory=Outlet)
    audit: Audit = field(default_factory=Audit)
    majority_at: float | None = None
    """None: always now."""
    has_voters: bool = True
    epoch: int = 1

    def __post_init__(self) -> None:
        self.driver = self._driver()

    def _driver(self) -> RecoveryDriver:
        master = self.master
        driver = RecoveryDriver(
            master.config,
            master.rpc,
            LoopClock(),
            power=self.outlet,
            storage=StorageFencing(master.config, master.rpc, LoopClock(), self.audit),
            master=Mastership(self.epoch, self._majority_at),
            queue=lambda: master.queue,
            is_locked=lambda name: is_locked(master.locks, name),
        )
        master.recovery.driver = driver
        return driver

    def _majority_at(self) -> float | None:
        if not self.has_voters:
            return None
        now = asyncio.get_running_loop().time()
        return now if self.majority_at is None else self.majority_at

    async def change_master(self) -> None:
        await self.driver.close()
        gone = self.master.world.nodes.keys() - self.master.rpc.nodes.keys()
        self.master = await self.master.restart()
        for name in gone:
            self.master.rpc.nodes.pop(name)
        self.epoch += 1
        self.driver = self._driver()
        self.driver.start()

    async def close(self) -> None:
        await self.driver.close()
        await self.master.end()

    async def protect(self, *names: str, **fields: Any) -> None:
        for name in names:
            op = create(name, pnode=node_name(3), **{"beparams": PROTECTED, **fields})
            succeeded(await self.master.run(op))

    async def set_policy(self, name: str, policy: Recovery) -> None:
        """Change what happens to an instance when its node is lost."""
        one = self.master.instance(name)
        beparams = {**one.beparams, "recovery": policy.value}
        await self.master.change(lambda draft: draft.put(replace(one, beparams=beparams)))

    def lose_third(self, survivor: str = "") -> None:
        """Node 3 loses its power, and with it its guests; or, with a survivor, only its network and its lease."""
        self.master.rpc.nodes.pop(node_name(3))
        guests = self.master.world.node(3).guests
        kept = {uuid for uuid in guests if self.master.snapshot.instances[uuid].name == survivor}
        for uuid in guests.keys() - kept:
            del guests[uuid]
        if survivor:
            return
        self.master.world.node(3).is_off = True

    def third_returns(self) -> None:
        self.master.world.node(3).is_off = False
        self.master.rpc.nodes[node_name(3)] = self.master.world.node(3).handlers()

    def beats(self, number: int) -> list[Any]:
        return self.master.world.node(number).beats

    async def fenced(self) -> None:
        """Wait until the state says that node 3 is fenced."""
        async with asyncio.timeout(120):
            while self.row(3) is not NodeState.FENCED:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.1)

    async def submitted(self, count: int) -> None:
        """Wait until recovery has submitted so many jobs."""
        async with asyncio.timeout(60):
            while len(self.jobs()) < count:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.1)

    def row(self, number: int) -> NodeState | None:
        row = self.master.node(number).recovery
        return row.state if row else None

    def jobs(self) -> list[str]:
        """What recovery has submitted, in order."""
        views = [self.master.queue.view(job_id) for job_id in self.master.queue.ids()]
        return [
            view.ops[0].op.summary()
            for view in views
            if view and any(source == SOURCE for source, _, _ in view.ops[0].op.reason)
        ]


def to_second(message: dict[str, Any]) -> AllocatorOutput:
    del message
    answer = {"success": True, "info": "", "result": [node_name(2)]}
    return AllocatorOutput(found=True, stdout=json.dumps(answer))


def all_to_second(message: dict[str, Any]) -> AllocatorOutput:
    names = message["request"]["instances"]
    moved = [[name, "default", [node_name(2)]] for name in names]
    jobs = [
        [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name, "target_node": node_name(2)}]
        for name in names
    ]
    answer = {"success": True, "info": "", "result": [moved, [], jobs]}
    return AllocatorOutput(found=True, stdout=json.dumps(answer))


def full(message: dict[str, Any]) -> AllocatorOutput:
    del message
    return AllocatorOutput(
        found=True, stdout=json.dumps({"success": False, "info": "full", "result": []})
    )


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    world = World()
    world.node(1).allocators["hail"] = to_second
    one = Cluster(await Master.begin(world))
    one.driver.start()
    yield one
    await one.close()


# What is watched


async def test_nothing_runs_without_a_protected_instance(cluster: Cluster) -> None:
    tasks = len(asyncio.all_tasks())
    succeeded(await cluster.master.run(create()))
    await asyncio.sleep(600)
    assert cluster.driver.status().nodes == ()
    assert not any(cluster.beats(number) for number in (1, 2, 3))
    assert len(asyncio.all_tasks()) == tasks


async def test_protection_begins_and_ends_with_the_parameter(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    assert {one.name for one in cluster.driver.status().nodes} == {
        node_name(1 + i) for i in range(3)
    }
    uuid = cluster.master.instance("web1.example.com").uuid
    last = cluster.beats(3)[-1]
    assert (last.protected, last.wanted, last.token is None) == ((uuid,), (uuid,), False)
    assert cluster.beats(2)[-1].protected == ()
    one = cluster.master.instance("web1.example.com")
    await cluster.master.change(lambda draft: draft.put(replace(one, beparams={})))
    await asyncio.sleep(1)
    cluster.beats(3).clear()
    await asyncio.sleep(10)
    last = cluster.beats(3)[-1]
    assert (last.protected, last.token is None) == ((), False), "or its guests would be killed"
    await asyncio.sleep(10)
    cluster.beats(3).clear()
    await asyncio.sleep(60)
    assert cluster.beats(3) == []


@pytest.mark.requirement("D7")
async def test_new_master_ends_the_protection_that_an_older_one_has_not(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    one = cluster.master.instance("web1.example.com")
    await cluster.master.change(lambda draft: draft.put(replace(one, beparams={})))
    await cluster.change_master()
    cluster.beats(3).clear()
    await asyncio.sleep(8)
    last = cluster.beats(3)[-1]
    assert (last.protected, last.token is None) == ((), False)
    await asyncio.sleep(30)
    cluster.beats(3).clear()
    await asyncio.sleep(60)
    assert cluster.beats(3) == []


async def test_recovery_is_settled_when_its_status_says_of_no_instance_that_it_waits(
    cluster: Cluster,
) -> None:
    seen: list[bool] = []

    async def watch(seconds: float) -> None:
        for _ in range(int(seconds / 0.05)):
            await asyncio.sleep(0.05)
            said = cluster.driver.status().instances
            is_calm = all(
                one.state is InstanceState.GIVEN_UP
                or (one.state is InstanceState.PROTECTED and not one.why)
                for one in said
            )
            assert cluster.driver.is_settled == is_calm
            if seen[-1:] != [is_calm]:
                seen.append(is_calm)

    watching = asyncio.create_task(watch(10))
    await cluster.protect("web1.example.com")
    await watching
    cluster.lose_third()
    await watch(60)
    assert cluster.master.instance("web1.example.com").primary_node == NODES[1]
    assert seen == [True, False, True, False, True]


async def test_watched_facts_come_from_filled_parameters(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    master = cluster.master

    def change(draft: Draft) -> None:
        draft.put(replace(draft.cluster, ndparams={"fence_methods": "watchdog power"}))
        draft.put(replace(draft.nodes[NODES[1]], offline=True))

    await master.change(change)
    watching = Watching()
    found = watching.watched(master.snapshot, has_lease=True)
    assert found.nodes.keys() == {NODES[0], THIRD}
    assert found.nodes[NODES[0]].methods == ()  # the master does not fence its own node
    assert found.nodes[THIRD].methods == (FenceMethod.WATCHDOG, FenceMethod.POWER)
    (facts,) = found.instances.values()
    assert (facts.node, facts.priority, facts.attempts, facts.is_wanted) == (THIRD, 50, 3, True)
    assert is_needed(master.snapshot, found)
    without = Watching().watched(master.snapshot, has_lease=False)
    assert without.nodes[THIRD].methods == (FenceMethod.POWER,)
    uuid = master.instance("web1.example.com").uuid
    assert watching.guests(master.snapshot, found)[0].leased == {THIRD: (uuid,)}


@pytest.mark.requirement("D13")
async def test_policy_of_the_group_protects_its_instances(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com", beparams={"memory": 512})
    master = cluster.master
    watching = Watching()
    assert not watching.watched(master.snapshot, has_lease=True).instances
    own = {"recovery": "failover", "recovery_priority": 70}
    (group,) = master.snapshot.groups.values()
    await master.change(lambda draft: draft.put(replace(group, beparams=own)))
    (facts,) = watching.watched(master.snapshot, has_lease=True).instances.values()
    assert (facts.recovery, facts.priority) == (Recovery.FAILOVER, 70)
    await asyncio.sleep(5)
    assert master.instance("web1.example.com").under_lease


# Loss and recovery


@pytest.mark.requirement("D12", "D13")
async def test_instances_of_a_lost_node_run_elsewhere_by_priority(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com", "web2.example.com")
    await cluster.protect("db.example.com", beparams={**PROTECTED, "recovery_priority": 90})
    await cluster.protect("test.example.com", beparams={"memory": 512})
    await asyncio.sleep(10)
    cluster.lose_third()
    await asyncio.sleep(60)
    assert cluster.outlet.cuts == [THIRD]
    assert cluster.row(3) is NodeState.FENCED
    assert cluster.master.node(3).offline
    assert (
        cluster.jobs()
        == [
            "NODE_MODIFY(node3.example.com)",
            "INSTANCE_FAILOVER(db.example.com)",
            "INSTANCE_FAILOVER(web1.example.com)",
            "INSTANCE_FAILOVER(web2.example.com)",
        ]
        or cluster.jobs()[0] == "NODE_SET_PARAMS(node3.example.com)"
    )
    for name in ("web1.example.com", "web2.example.com", "db.example.com"):
        uuid = cluster.master.instance(name).uuid
        assert cluster.master.world.where(uuid) == {node_name(2): "running"}
    assert cluster.master.instance("test.example.com").primary_node == THIRD
    assert len(cluster.master.instance("db.example.com").recovery.attempts) == 1  # type: ignore[union-attr] # it was recovered


@pytest.mark.requirement("D7")
async def test_watchdog_fences_only_after_the_lease(cluster: Cluster) -> None:
    cluster.outlet.works = False
    await cluster.protect("web1.example.com")
    await asyncio.sleep(60)
    assert cluster.master.node(3).recovery.is_armed  # type: ignore[union-attr] # it has answered
    lost_at = asyncio.get_running_loop().time()
    cluster.lose_third()
    await cluster.fenced()
    waited = asyncio.get_running_loop().time() - lost_at
    assert waited >= reset_by(0.0, -100.0) - 2.0
    assert waited < 35.0


@pytest.mark.requirement("D7")
async def test_running_guest_is_protected_once_its_node_knows_it(cluster: Cluster) -> None:
    cluster.outlet.works = False
    await cluster.protect("web1.example.com", "db.example.com")
    await asyncio.sleep(20)
    await cluster.set_policy("web1.example.com", Recovery.NONE)
    await asyncio.sleep(5)
    assert not cluster.master.instance("web1.example.com").under_lease
    cluster.lose_third(survivor="web1.example.com")
    await cluster.set_policy("web1.example.com", Recovery.FAILOVER)
    await cluster.fenced()
    await cluster.submitted(2)
    await cluster.change_master()
    await asyncio.sleep(60)
    assert "INSTANCE_FAILOVER(web1.example.com)" not in cluster.jobs()
    assert "INSTANCE_FAILOVER(db.example.com)" in cluster.jobs()
    assert any(
        "web1.example.com" in one and "--confirm" in one for one in cluster.driver.status().alarms
    )
    op = OpInstanceFailover(instance_name="web1.example.com", target_node=node_name(2))
    assert "not known to be fenced" in str(failed(await cluster.master.run(op)))
    await cluster.driver.confirm_fenced(THIRD, "root")
    await asyncio.sleep(60)
    assert cluster.master.instance("web1.example.com").primary_node == NODES[1]


@pytest.mark.requirement("D7")
async def test_guests_are_listed_only_together_with_a_lease(cluster: Cluster) -> None:
    """A node that lists a guest and has no lease kills it."""
    await cluster.protect("web1.example.com", beparams={"memory": 512})
    await cluster.set_policy("web1.example.com", Recovery.FAILOVER)
    await asyncio.sleep(10)
    first, second = cluster.beats(3)[:2]
    assert (first.token, first.protected) == (None, ())
    assert second.token is not None
    assert second.protected
    assert cluster.master.node(3).recovery.is_armed  # type: ignore[union-attr] # it has answered
    cluster.majority_at = asyncio.get_running_loop().time() - 60
    await asyncio.sleep(10)
    assert cluster.beats(3)[-1].protected == ()
    assert cluster.master.node(3).recovery.is_armed  # type: ignore[union-attr] # it keeps its list


@pytest.mark.requirement("D7", "D11")
async def test_node_of_an_earlier_version_answers_without_a_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cluster.master.rpc.call

    async def call(node: Any, procedure: Any, args: Any = None, **also: Any) -> Any:
        if procedure is HEARTBEAT and node.uuid == THIRD:
            raise RpcFailed(node.name, "this node has no procedure 'heartbeat'", UNKNOWN_PROCEDURE)
        return await real(node, procedure, args, **also)

    monkeypatch.setattr(cluster.master.rpc, "call", call)
    await cluster.protect("web1.example.com")
    await asyncio.sleep(120)
    (third,) = (one for one in cluster.driver.status().nodes if one.name == node_name(3))
    assert (third.state, third.is_armed) == (NodeState.HEALTHY, False)
    assert "upgrade the node" in third.why_unarmed
    assert cluster.outlet.cuts == []


@pytest.mark.requirement("D7")
async def test_node_forgets_a_guest_only_after_the_state_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.protect("web1.example.com", "db.example.com")
    await asyncio.sleep(10)
    uuid = cluster.master.instance("web1.example.com").uuid
    real = cluster.master.config.change

    async def refuse(_work: object) -> None:
        raise Refused("the disk is full")

    await cluster.set_policy("web1.example.com", Recovery.NONE)
    monkeypatch.setattr(cluster.master.config, "change", refuse)
    await asyncio.sleep(30)
    assert uuid in cluster.beats(3)[-1].protected
    monkeypatch.setattr(cluster.master.config, "change", real)
    await asyncio.sleep(30)
    assert uuid not in cluster.beats(3)[-1].protected
    assert not cluster.master.instance("web1.example.com").under_lease


@pytest.mark.requirement("D7")
async def test_answer_to_a_heartbeat_from_before_the_list_was_shortened_confirms_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may have taken in the shorter list after it."""
    cluster.outlet.works = False
    await cluster.protect("web1.example.com", "db.example.com")
    await asyncio.sleep(10)
    master = cluster.master
    real, held = master.rpc.call, asyncio.Event()

    async def slow(node: Any, procedure: Any, args: Any = None, **also: Any) -> Any:
        uuid = master.instance("web1.example.com").uuid
        is_held = procedure is HEARTBEAT and not held.is_set() and uuid in args.protected
        answer = await real(node, procedure, args, **also)
        if is_held and node.uuid == THIRD:
            await asyncio.sleep(3.5)
        return answer

    monkeypatch.setattr(master.rpc, "call", slow)
    await asyncio.sleep(3)
    held.set()
    await cluster.set_policy("web1.example.com", Recovery.NONE)
    await asyncio.sleep(2)
    cluster.lose_third(survivor="web1.example.com")
    await cluster.set_policy("web1.example.com", Recovery.FAILOVER)
    await asyncio.sleep(20)
    assert not master.instance("web1.example.com").under_lease


@pytest.mark.requirement("D7")
async def test_no_token_is_returned_without_a_majority(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(20)
    assert cluster.beats(3)[-1].token is not None
    cluster.majority_at = asyncio.get_running_loop().time()
    await asyncio.sleep(10)
    cluster.beats(3).clear()
    await asyncio.sleep(10)
    assert cluster.beats(3)
    assert all(one.token is None for one in cluster.beats(3))


@pytest.mark.requirement("D10")
async def test_two_voters_give_no_lease_and_trust_no_watchdog(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    assert cluster.beats(3)[-1].protected
    cluster.has_voters = False
    await asyncio.sleep(20)
    assert cluster.beats(3)[-1].protected == ()
    assert cluster.beats(3)[-1].token is not None
    assert not cluster.master.node(3).recovery.is_armed  # type: ignore[union-attr] # it has answered
    still = [one for one in cluster.beats(3) if not one.protected]
    assert len(still) < len(cluster.beats(3))


@pytest.mark.requirement("D7")
async def test_guests_of_a_node_without_watchdog_fencing_survive_the_end_of_the_lease(
    cluster: Cluster,
) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    node = cluster.master.node(3)
    await cluster.master.change(
        lambda draft: draft.put(replace(node, ndparams={"fence_methods": "power"}))
    )
    await asyncio.sleep(10)
    assert cluster.beats(3)[-1].protected == ()
    assert not cluster.master.node(3).recovery.is_armed  # type: ignore[union-attr] # it has answered
    lists = [bool(one.protected) for one in cluster.beats(3) if one.token is not None]
    assert lists == sorted(lists, reverse=True), "until no master relies on the watchdog"
    assert lists[0]


@pytest.mark.requirement("D7")
async def test_node_that_only_a_candidate_reaches_keeps_its_lease(cluster: Cluster) -> None:
    candidate = replace(cluster.master.node(2), master_candidate=True)
    await cluster.master.change(lambda draft: draft.put(candidate))
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    cluster.master.rpc.nodes.pop(node_name(3))
    await asyncio.sleep(120)
    assert cluster.outlet.cuts == []
    assert cluster.row(3) is NodeState.HEALTHY
    assert cluster.beats(3)[-1].token is not None
    cluster.master.world.node(3).is_off = True
    await cluster.fenced()


@pytest.mark.requirement("D11")
async def test_nothing_is_fenced_while_most_nodes_are_silent(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    cluster.lose_third()
    cluster.master.rpc.nodes.pop(node_name(2))
    await asyncio.sleep(300)
    assert cluster.outlet.cuts == []
    assert cluster.driver.status().alarms
    assert cluster.row(3) in (None, NodeState.HEALTHY)


async def test_administrator_confirms_what_no_method_fences(cluster: Cluster) -> None:
    cluster.outlet.works = False
    cluster.master.world.node(3).why_unarmed = "no device"
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    with pytest.raises(PrereqError, match="nothing to confirm"):
        await cluster.driver.confirm_fenced(THIRD, "root")
    status = {one.name: one for one in cluster.driver.status().nodes}
    assert status[node_name(3)].why_unarmed == "no device"
    cluster.lose_third()
    await asyncio.sleep(60)
    assert cluster.row(3) is NodeState.STUCK
    await cluster.driver.confirm_fenced(THIRD, "root")
    assert cluster.row(3) is NodeState.FENCED
    await asyncio.sleep(30)
    uuid = cluster.master.instance("web1.example.com").uuid
    assert cluster.master.world.where(uuid) == {node_name(2): "running"}


@pytest.mark.requirement("D7")
async def test_confirmation_that_does_not_become_durable_ends_with_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.outlet.works = False
    cluster.master.world.node(3).why_unarmed = "no device"
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    cluster.lose_third()
    await asyncio.sleep(60)
    assert cluster.row(3) is NodeState.STUCK

    async def refuse(_work: object) -> None:
        raise Refused("the disk is full")

    monkeypatch.setattr(cluster.master.config, "change", refuse)
    with pytest.raises(ExecError, match="confirm again"):
        await cluster.driver.confirm_fenced(THIRD, "root")


@pytest.mark.requirement("D12")
async def test_row_that_may_not_be_written_is_written_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power is not touched before the state certainly says so."""
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    real, refused = cluster.master.config.change, 0

    async def change(fn: Any, **also: Any) -> Any:
        nonlocal refused
        if refused < 3:
            refused += 1
            assert cluster.outlet.cuts == []
            raise Refused("the disk is full")
        return await real(fn, **also)

    monkeypatch.setattr(cluster.master.config, "change", change)
    cluster.lose_third()
    await cluster.fenced()
    assert (refused, cluster.outlet.cuts) == (3, [THIRD])


@pytest.mark.requirement("D12")
async def test_new_master_continues_and_does_not_fence_twice(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    cluster.lose_third()
    await cluster.fenced()
    await cluster.change_master()
    await asyncio.sleep(90)
    assert cluster.outlet.cuts == [THIRD]
    uuid = cluster.master.instance("web1.example.com").uuid
    assert cluster.master.world.where(uuid) == {node_name(2): "running"}
    assert cluster.jobs().count("INSTANCE_FAILOVER(web1.example.com)") == 1


@pytest.mark.requirement("D13")
async def test_job_of_an_older_master_is_found(cluster: Cluster) -> None:
    """It waits for a lock while the master changes."""
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    locks = cluster.master.locks
    cluster.lose_third()
    async with locks.holding(0, [lock(Level.NODE, THIRD)]):
        await cluster.submitted(1)
        await cluster.change_master()
    await asyncio.sleep(90)
    offline = [one for one in cluster.jobs() if "node3" in one]
    assert len(offline) == 1


@pytest.mark.requirement("D9", "D13")
async def test_job_of_an_older_master_leaves_no_node_offline_that_has_returned(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that marks the node offline waits for a lock; under the next master it is late."""
    real = LUNodeSetParams.check_prereq

    async def late(unit: LUNodeSetParams, ctx: Any) -> Any:
        if unit.op.offline:
            await asyncio.sleep(20)
        return await real(unit, ctx)

    monkeypatch.setattr(LUNodeSetParams, "check_prereq", late)
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    locks = cluster.master.locks
    cluster.lose_third()
    async with locks.holding(0, [lock(Level.NODE, THIRD)]):
        await cluster.submitted(1)
        await cluster.fenced()
        cluster.third_returns()
        await asyncio.sleep(5)
        assert cluster.row(3) is NodeState.RETURNING
        await cluster.change_master()
    await asyncio.sleep(90)
    assert cluster.row(3) is NodeState.HEALTHY
    assert not cluster.master.node(3).offline


@pytest.mark.requirement("D13")
async def test_instance_without_room_waits_until_another_one_is_removed(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    succeeded(await cluster.master.run(create("test.example.com", pnode=node_name(1))))
    cluster.master.world.node(1).allocators["hail"] = full
    await asyncio.sleep(10)
    cluster.lose_third()
    await asyncio.sleep(400)
    (status,) = cluster.driver.status().instances
    assert "full" in status.why
    row = cluster.master.instance("web1.example.com").recovery
    assert row is not None
    assert (row.attempts, row.given_up) == ((), "")
    cluster.master.world.node(1).allocators["hail"] = to_second
    assert len(cluster.jobs()) == 4  # offline, and after 0, 60 and 180 s
    await asyncio.sleep(10)
    assert len(cluster.jobs()) == 4
    op = OpInstanceRemove(instance_name="test.example.com", ignore_failures=True)
    succeeded(await cluster.master.run(op))
    await asyncio.sleep(60)
    assert len(cluster.jobs()) == 5
    assert cluster.master.instance("web1.example.com").primary_node == NODES[1]


@pytest.mark.requirement("D9")
async def test_node_that_returns_drops_what_moved_away(cluster: Cluster) -> None:
    """Its guest runs there again after the fencing, which no method allows: it is killed all the same."""
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    uuid = cluster.master.instance("web1.example.com").uuid
    guest = cluster.master.world.node(3).guests[uuid]
    cluster.lose_third()
    await asyncio.sleep(60)
    assert cluster.master.instance("web1.example.com").primary_node == NODES[1]
    # Its processors are stopped, so the model, which knows one disk for both, sees no second writer.
    cluster.master.world.node(3).guests[uuid] = Guest(guest.spec, "postmigrate")
    cluster.third_returns()
    await asyncio.sleep(30)
    assert cluster.row(3) is NodeState.HEALTHY
    assert not cluster.master.node(3).offline
    assert cluster.master.world.where(uuid) == {node_name(2): "running"}


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("is_first", [True, False])
async def test_lost_node_that_an_administrator_marked_offline_stays_offline(
    cluster: Cluster, *, is_first: bool
) -> None:
    """Whether recovery has marked it before or not; its instances run elsewhere all the same."""
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    cluster.lose_third()
    await asyncio.sleep(10.5 if is_first else 60)
    mark = OpNodeSetParams(node_name=node_name(3), offline=True, force=True)
    succeeded(await cluster.master.run(mark))
    await asyncio.sleep(60)
    assert cluster.row(3) is NodeState.FENCED
    assert cluster.master.instance("web1.example.com").primary_node == NODES[1]
    cluster.third_returns()
    await asyncio.sleep(60)
    assert (cluster.row(3), cluster.master.node(3).offline) == (NodeState.FENCED, True)
    (why,) = [one.why for one in cluster.driver.status().nodes if one.name == node_name(3)]
    assert "an administrator has marked it offline" in why
    succeeded(await cluster.master.run(OpNodeSetParams(node_name=node_name(3), offline=False)))
    await asyncio.sleep(10)
    assert cluster.row(3) is NodeState.HEALTHY


async def test_node_in_maintenance_restarts_unfenced_and_gets_its_instances_back(
    cluster: Cluster,
) -> None:
    master = cluster.master
    master.world.node(1).allocators["hail"] = all_to_second
    await cluster.protect("web1.example.com")
    await cluster.protect("test.example.com", beparams={"memory": 512})
    await asyncio.sleep(10)
    begin = OpNodeMaintenanceBegin(node_name=node_name(3), iallocator="hail")
    for _, job_id in succeeded(await master.run(begin))["jobs"]:
        succeeded(await master.final(job_id))
    cluster.lose_third()
    await asyncio.sleep(200)
    cluster.third_returns()
    end = OpNodeMaintenanceEnd(node_name=node_name(3), failback=True)
    for _, job_id in succeeded(await master.run(end))["jobs"]:
        succeeded(await master.final(job_id))
    await asyncio.sleep(60)
    assert master.instance("web1.example.com").primary_node == THIRD
    assert (cluster.outlet.cuts, cluster.jobs()) == ([], [])
    assert cluster.row(3) in (None, NodeState.HEALTHY)


async def test_instance_returns_to_its_lost_node_if_its_policy_says_so(cluster: Cluster) -> None:
    master = cluster.master
    await cluster.protect("web1.example.com", beparams={**PROTECTED, "recovery_failback": True})
    await cluster.protect("web2.example.com")
    await asyncio.sleep(10)
    cluster.lose_third()
    await asyncio.sleep(60)
    cluster.third_returns()
    await asyncio.sleep(30)
    away = master.snapshot.moved_away_from(master.node(3))
    assert [one.name for one in away] == ["web1.example.com"]
    end = OpNodeMaintenanceEnd(node_name=node_name(3), failback=True)
    for _, job_id in succeeded(await master.run(end))["jobs"]:
        succeeded(await master.final(job_id))
    assert master.instance("web1.example.com").primary_node == THIRD
    assert master.instance("web2.example.com").primary_node == NODES[1]
    assert master.node(3).moved_away == ()


async def test_guest_that_crashed_is_started_and_one_that_hangs_is_reset(cluster: Cluster) -> None:
    await cluster.protect("web1.example.com")
    await asyncio.sleep(10)
    node, uuid = cluster.master.world.node(3), cluster.master.instance("web1.example.com").uuid
    node.guests.pop(uuid)
    node.faults[uuid] = GuestFault.CRASHED
    await cluster.submitted(1)
    node.faults.clear()
    await asyncio.sleep(5)
    assert cluster.jobs() == ["INSTANCE_STARTUP(web1.example.com)"]
    assert cluster.master.world.where(uuid) == {node_name(3): "running"}
    node.faults[uuid] = GuestFault.HUNG
    await cluster.submitted(2)
    node.faults.clear()
    await asyncio.sleep(5)
    assert cluster.jobs()[1:] == ["INSTANCE_REBOOT(web1.example.com)"]
