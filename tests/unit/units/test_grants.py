"""Grants of protected disks: committed before a node opens them, refused while another node may be writing."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, RpcFailed
from ganeti.config.fill import instance_spec, recovery_of
from ganeti.config.transaction import Draft
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import AdminState, RebootType
from ganeti.model.objects import DetachedDisk, Grant, NodeRow, NodeUuid
from ganeti.model.opcodes.base import DiskRequest, OpCode
from ganeti.model.opcodes.instance import (
    OpInstanceReboot,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
)
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.recovery import InstanceRow, NodeState, Recovery
from ganeti.node.grants import opens
from ganeti.rpc.procedures.instances import INSTANCE_START, StartArgs
from ganeti.simulation.faulty_store import Crash
from ganeti.simulation.nodes.state import Guest
from ganeti.units.instance.grants import check_recovery
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, WatchedRpc, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("D1", "D2")]

PROTECTED = {"memory": 512, "recovery": "failover"}
TARGET = "node2.example.com"


def watch(master: Master) -> None:
    """Check at each call that opens disks for writing that its grants are those of the committed configuration."""
    call = master.rpc.call

    async def checked(node: Any, procedure: Any, args: Any, *, key: str = "") -> Any:
        for disk in opens(procedure.name, args):
            committed = {
                one.uuid: one.grant
                for instance in master.snapshot.instances.values()
                for one in instance.disks
            }
            assert disk.grant == committed[disk.uuid]
            assert disk.grant is None or disk.grant.writer == node.uuid
        return await call(node, procedure, args, key=key)

    master.rpc.call = checked  # type: ignore[method-assign]  # the test looks at each call


async def protected(master: Master, **fields: Any) -> None:
    """A running protected instance on the third node, which is not the master."""
    watch(master)
    succeeded(await master.run(create(pnode="node3.example.com", beparams=PROTECTED, **fields)))
    master.rpc.reset()


def grants(master: Master) -> list[Grant]:
    found = [disk.grant for disk in master.instance(NAME).disks]
    return [grant for grant in found if grant is not None]


def writers(master: Master) -> set[NodeUuid | None]:
    return {grant.writer for grant in grants(master)}


def generation(master: Master) -> int:
    (found,) = {grant.generation for grant in grants(master)}
    return found


async def lose(
    master: Master, state: NodeState | None, *, is_off: bool = True, awaits_return: bool = False
) -> None:
    """The third node is dead and marked offline; recovery has got so far with it."""
    master.rpc.nodes.pop("node3.example.com", None)
    master.world.node(3).guests.clear()
    row = NodeRow(NODES[2], state, 1, is_off=is_off) if state else None

    def change(draft: Draft) -> None:
        node = draft.nodes[NODES[2]]
        draft.put(replace(node, offline=True, awaits_return=awaits_return, recovery=row))

    await master.change(change)


def failover(**fields: Any) -> OpInstanceFailover:
    return OpInstanceFailover(instance_name=NAME, target_node=TARGET, **fields)


async def test_an_unprotected_instance_has_no_grants(master: Master) -> None:
    succeeded(await master.run(create(pnode="node3.example.com")))
    succeeded(await master.run(failover()))
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert grants(master) == []
    assert all(node.grants.content == {} for node in master.world.nodes.values())


async def test_each_start_is_a_new_generation_that_shutdown_releases(master: Master) -> None:
    await protected(master)
    assert (generation(master), writers(master)) == (1, {NODES[2]})
    assert {grant.epoch for grant in grants(master)} == {master.config.epoch}
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert (generation(master), writers(master)) == (2, {None})
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert (generation(master), writers(master)) == (3, {NODES[2]})
    master.check()


@pytest.mark.parametrize(
    "op",
    [
        OpInstanceReinstall(instance_name=NAME),
        OpInstanceRename(
            instance_name=NAME, new_name="web2.example.com", name_check=False, ip_check=False
        ),
        OpInstanceActivateDisks(instance_name=NAME),
        OpInstanceStartup(instance_name=NAME),
        OpInstanceReboot(instance_name=NAME, reboot_type=RebootType.FULL),
    ],
)
async def test_every_job_that_opens_disks_is_granted_them_first(master: Master, op: OpCode) -> None:
    await protected(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    succeeded(await master.run(op))
    (instance,) = master.snapshot.instances.values()
    assert {disk.grant.generation for disk in instance.disks if disk.grant} == {3}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(1, 5))
async def test_start_survives_a_crash_at_every_commit(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await protected(master, start=False)
    await master.submit(OpInstanceStartup(instance_name=NAME))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        watch(after)
        await after.idle()
        succeeded(await after.run(OpInstanceStartup(instance_name=NAME)))
        assert writers(after) == {NODES[2]}
        after.check()
    finally:
        await after.end()


@pytest.mark.requirement("D6")
@pytest.mark.parametrize(
    "state", [None, NodeState.HEALTHY, NodeState.FENCING, NodeState.STUCK, NodeState.RETURNING]
)
async def test_lost_node_must_be_fenced_before_its_disks_are_granted(
    master: Master, state: NodeState | None
) -> None:
    await protected(master)
    await lose(master, state)
    before = grants(master)
    _, (text, code) = failed(await master.run(failover()))
    assert code == "wrong_state"
    assert "D6" in text
    assert "gnt-node fenced --confirm node3.example.com" in text
    assert "generation 1" in text
    assert (master.rpc.acts(), grants(master)) == ([], before)


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("disks", [True, False])
async def test_fenced_node_loses_its_instance(master: Master, disks: bool) -> None:
    fields = {} if disks else {"disk_template": "diskless", "disks": []}
    await protected(master, **fields)
    await lose(master, NodeState.FENCED)
    succeeded(await master.run(failover()))
    assert writers(master) == ({NODES[1]} if disks else set())
    master.check()


@pytest.mark.requirement("D6")
async def test_diskless_guest_does_not_run_twice_either(master: Master) -> None:
    await protected(master, disk_template="diskless", disks=[])
    await lose(master, NodeState.FENCING)
    _, (text, _code) = failed(await master.run(failover()))
    assert "gnt-node fenced --confirm" in text


@pytest.mark.requirement("D6", "D8")
async def test_watchdog_counts_for_a_guest_that_its_node_knew_as_protected(master: Master) -> None:
    await protected(master)
    await lose(master, NodeState.FENCED, is_off=False)
    assert "not known to be fenced" in str(failed(await master.run(failover())))
    one = master.instance(NAME)
    await master.change(lambda draft: draft.put(replace(one, under_lease=True)))
    succeeded(await master.run(failover()))


@pytest.mark.requirement("G5", "D7")
@pytest.mark.parametrize("move", ["failover", "migrate", "new primary", "recreate"])
@pytest.mark.parametrize(
    "state", [NodeState.FENCED, NodeState.RETURNING, NodeState.HEALTHY, NodeState.STUCK]
)
async def test_guest_without_protection_outlives_the_lease_of_its_node(
    master: Master, state: NodeState, move: str
) -> None:
    """Recovery's offline mark says nothing of a guest that the watchdog does not end; the power does."""
    op = await unprotected(master, move)
    await lose(master, state, is_off=False, awaits_return=True)
    before = master.instance(NAME)
    _, (text, code) = failed(await master.run(op))
    assert code == "wrong_state"
    assert f"{NAME} may still run on node3.example.com" in text
    assert "gnt-node fenced --confirm node3.example.com" in text
    assert (master.rpc.acts(), master.instance(NAME)) == ([], before)
    await lose(master, NodeState.FENCED, is_off=True, awaits_return=True)
    succeeded(await master.run(op))
    assert master.instance(NAME).primary_node == NODES[1]


@pytest.mark.requirement("G5", "D7")
@pytest.mark.parametrize("move", ["failover", "migrate", "new primary", "recreate"])
async def test_administrator_who_marks_a_node_offline_promises_that_it_is_dead(
    master: Master, move: str
) -> None:
    op = await unprotected(master, move)
    await lose(master, NodeState.FENCED, is_off=False, awaits_return=True)
    failed(await master.run(op))
    succeeded(await master.run(OpNodeSetParams(node_name="node3.example.com", offline=True)))
    succeeded(await master.run(op))
    assert master.instance(NAME).primary_node == NODES[1]


async def unprotected(master: Master, move: str) -> OpCode:
    """An instance without protection on the third node, and an opcode that gives it the second one."""
    is_local = move in ("new primary", "recreate")
    template = "file" if is_local else "sharedfile"
    op = create(pnode="node3.example.com", start=not is_local, disk_template=template)
    succeeded(await master.run(op))
    if move == "new primary":
        master.world.node(2).local.disks |= master.world.node(3).local.disks
    if move == "recreate":
        master.world.node(3).local.disks.clear()
    master.rpc.reset()
    return {
        "failover": failover(),
        "migrate": migrate(allow_failover=True),
        "new primary": modify(pnode=TARGET),
        "recreate": OpInstanceRecreateDisks(instance_name=NAME, nodes=[TARGET]),
    }[move]


@pytest.mark.requirement("G5", "D7")
async def test_guest_that_was_protected_until_its_disks_were_closed_has_ended(
    master: Master,
) -> None:
    await protected(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    succeeded(await master.run(modify(beparams={"recovery": "restart"})))
    await lose(master, NodeState.FENCED, is_off=False, awaits_return=True)
    succeeded(await master.run(failover()))
    assert master.instance(NAME).primary_node == NODES[1]


@pytest.mark.requirement("G5", "D7")
async def test_guest_of_a_broken_migration_is_not_resumed_beside_one_that_may_run(
    master: Master,
) -> None:
    succeeded(await master.run(create(pnode="node3.example.com")))
    guest = master.world.node(3).guests[master.instance(NAME).uuid]
    await lose(master, NodeState.FENCED, is_off=False, awaits_return=True)
    master.world.node(2).guests[master.instance(NAME).uuid] = Guest(guest.spec, "incoming")
    cleanup = migrate(target_node=None, cleanup=True)
    _, (text, _code) = failed(await master.run(cleanup))
    assert f"{NAME} may still run on node3.example.com" in text
    assert master.instance(NAME).primary_node == NODES[2]


@pytest.mark.requirement("D6", "D8")
async def test_row_that_changes_after_the_check_stops_the_failover(master: Master) -> None:
    """The commit decides, not the state that the job saw when it began."""
    await protected(master)
    await lose(master, NodeState.FENCED)
    change = master.config.change
    is_first = True

    async def returned_meanwhile(fn: Any, *, also: Sequence[Any] = ()) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            await lose(master, NodeState.RETURNING)
        return await change(fn, also=also)

    job = await master.submit(failover())
    master.config.change = returned_meanwhile  # type: ignore[method-assign]  # the test looks at each call
    view = await master.final(job)
    master.config.change = change  # type: ignore[method-assign]  # the test looks at each call
    failed(view)
    assert master.instance(NAME).primary_node == NODES[2]
    assert writers(master) == {NODES[2]}
    assert "instance_start" not in master.rpc.acts()


async def test_administrator_can_force_a_failover_of_a_node_that_is_not_fenced(
    master: Master,
) -> None:
    await protected(master)
    await lose(master, None)
    succeeded(await master.run(failover(ignore_consistency=True)))
    assert writers(master) == {NODES[1]}


async def test_released_disk_needs_no_fencing(master: Master) -> None:
    await protected(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    await lose(master, None)
    succeeded(await master.run(failover()))
    assert master.instance(NAME).primary_node == NODES[1]


async def test_protection_that_begins_while_the_guest_runs_holds_at_once(master: Master) -> None:
    watch(master)
    succeeded(await master.run(create(pnode="node3.example.com")))
    succeeded(await master.run(modify(beparams={"recovery": "failover"})))
    await lose(master, None)
    _, (text, _code) = failed(await master.run(failover()))
    assert "gnt-node fenced --confirm node3.example.com" in text


async def test_generations_go_on_while_the_instance_is_not_protected(master: Master) -> None:
    await protected(master)
    succeeded(await master.run(modify(beparams={"recovery": "none"})))
    await lose(master, None)
    succeeded(await master.run(failover()))
    assert generation(master) == 3
    assert writers(master) == {NODES[1]}


async def test_migration_makes_its_target_the_writer_at_the_switch(master: Master) -> None:
    await protected(master)
    succeeded(await master.run(migrate()))
    assert (generation(master), writers(master)) == (2, {NODES[1]})
    succeeded(await master.run(migrate(target_node="node3.example.com")))
    assert (generation(master), writers(master)) == (3, {NODES[2]})
    succeeded(await master.run(migrate()))
    master.check()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 6))
async def test_failed_migration_leaves_the_node_of_the_guest_as_the_writer(
    master: Master, number: int, fault: Fault
) -> None:
    await protected(master)
    master.rpc.fail(number, fault)
    await master.run(migrate())
    await master.idle()
    master.rpc.forget_faults()
    await master.run(OpInstanceFailover(instance_name=NAME, target_node=None, cleanup=True))
    instance = master.instance(NAME)
    where = master.world.where(instance.uuid)
    assert where in ({}, {master.snapshot.nodes[instance.primary_node].name: "running"})
    assert writers(master) == {instance.primary_node}
    master.world.check_no_guest_runs_twice()


@pytest.mark.requirement("D8", "D9")
async def test_late_start_call_is_refused_after_the_disk_was_closed(master: Master) -> None:
    await protected(master)
    late = spec(master)
    succeeded(await master.run(failover()))
    await start_fails(master, 3, late)
    assert master.world.where(master.instance(NAME).uuid) == {TARGET: "running"}


@pytest.mark.requirement("D8", "D9")
async def test_returning_node_refuses_the_start_call_that_it_missed(master: Master) -> None:
    await protected(master, start=False)
    node3 = master.rpc.nodes["node3.example.com"]
    master.rpc.fail(1, Fault.LOST_CALL)
    failed(await master.run(OpInstanceStartup(instance_name=NAME)))
    late = spec(master)
    master.world.node(3).grants.content = {}
    await lose(master, NodeState.FENCED)
    succeeded(await master.run(failover()))
    master.rpc.nodes["node3.example.com"] = node3
    succeeded(await master.run(OpNodeSetParams(node_name="node3.example.com", offline=False)))
    await start_fails(master, 3, late)


def spec(master: Master) -> InstanceSpec:
    return instance_spec(master.snapshot, master.instance(NAME))


async def start_fails(master: Master, number: int, late: InstanceSpec) -> None:
    args = StartArgs(instance=late)
    with pytest.raises(RpcFailed, match="is over"):
        await WatchedRpc.call(master.rpc, master.node(number), INSTANCE_START, args, key="late")


async def test_failover_policy_is_refused_for_data_on_one_node(master: Master) -> None:
    _, (text, code) = failed(await master.run(create(beparams=PROTECTED, disk_template="file")))
    assert code == "wrong_input"
    assert "disk template file keeps its data on one node; use recovery=restart" in text


async def test_failover_policy_is_refused_for_drbd(master: Master) -> None:
    """Its primary node may write alone without the consent of the master (D4)."""
    succeeded(await master.run(create()))
    mirrored = replace(master.instance(NAME), disk_template="plain", beparams=PROTECTED)
    with pytest.raises(InputError, match="keeps its data on one node"):
        check_recovery(mirrored)
    # The policy of the whole cluster means a restart for it.
    assert recovery_of(master.snapshot, mirrored) is Recovery.RESTART


async def test_admin_state_is_recorded_with_the_release(master: Master) -> None:
    await protected(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert master.instance(NAME).admin_state is AdminState.DOWN


@pytest.mark.requirement("D8", "D13")
@pytest.mark.parametrize(
    "op",
    [
        modify(nics=[["add", {}]], hotplug=True),
        modify(disks=[["detach", 1, {}]], hotplug=True),
        OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=100, wait_for_sync=False),
    ],
)
async def test_job_keeps_what_recovery_commits_while_its_calls_run(
    master: Master, op: OpCode
) -> None:
    await protected(master, disks=[DiskRequest(size=512), DiskRequest(size=256)])
    row = InstanceRow(master.instance(NAME).uuid, (1.0,))
    later = replace_generation(grants(master)[0], 7)
    call = master.rpc.call

    def recover(draft: Draft) -> None:
        now = draft.instances[master.instance(NAME).uuid]
        disks = tuple(replace(disk, grant=later) for disk in now.disks)
        draft.put(replace(now, recovery=row, disks=disks))

    async def meanwhile(node: Any, procedure: Any, args: Any, *, key: str = "") -> Any:
        done = await call(node, procedure, args, key=key)
        is_first = master.instance(NAME).recovery is None
        if is_first and procedure.name in ("hotplug_nic", "hotplug_disk", "blockdev_grow"):
            await master.config.change(recover)
        return done

    master.rpc.call = meanwhile  # type: ignore[method-assign]  # recovery commits in the middle of the job
    succeeded(await master.run(op))
    assert master.instance(NAME).recovery == row
    detached = [one.disk.grant for one in master.snapshot.table(DetachedDisk).values()]
    assert {one.generation for one in [*grants(master), *filter(None, detached)]} == {7}


def replace_generation(grant: Grant, generation: int) -> Grant:
    return dataclasses.replace(grant, generation=generation)
