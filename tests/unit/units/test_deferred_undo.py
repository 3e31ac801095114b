"""Undo steps that are run deferred take nothing away that other jobs have made or use meanwhile."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.locking.levels import Level, Mode
from ganeti.model import wire
from ganeti.model.job import UndoStep
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.rpc.procedures.devices import (
    DeviceAction,
    DiskChangeArgs,
    MemoryArgs,
    NicChangeArgs,
)
from ganeti.simulation.nodes.state import Guest
from ganeti.units.undo.run import describe, locks_of
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, node_name, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G1", "G5", "G11")]


async def made(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(create(**fields)))
    master.rpc.reset()
    return master.instance(NAME)


def removal(master: Master, instance: Instance, node: str = NODES[0]) -> UndoStep:
    disk = wire.plain(instance_spec(master.snapshot, instance).disks[0])
    return UndoStep("remove_disk", {"node": node, "instance": instance.name, "disk": disk})


def of_guest(procedure: str, master: Master, instance: Instance, node: str) -> UndoStep:
    spec = wire.plain(instance_spec(master.snapshot, instance))
    return UndoStep(procedure, {"node": node, "instance": spec})


async def deferred(master: Master, *steps: UndoStep) -> list[str]:
    """Run steps deferred; why those failed that did."""
    return [why for _step, why in await master.processor.undo(7, steps, deferred=True)]


async def acts_of(master: Master, step: UndoStep) -> list[str]:
    """What a step that succeeds does to the nodes."""
    master.rpc.reset()
    assert await deferred(master, step) == []
    return master.rpc.acts()


@pytest.mark.parametrize("template", ["file", "sharedfile"])
async def test_a_disk_that_the_configuration_has_where_it_is_stays(
    master: Master, template: str
) -> None:
    instance = await made(master, disk_template=template)
    assert await acts_of(master, removal(master, instance)) == []
    master.check()
    elsewhere = await acts_of(master, removal(master, instance, NODES[1]))
    assert elsewhere == (["blockdev_remove"] if template == "file" else [])
    master.check()


async def test_an_unchanged_instance_is_removed_with_its_disks(
    master: Master,
) -> None:
    instance = await made(master, start=False)
    steps = [removal(master, instance), UndoStep("forget_instance", {"instance": instance.uuid})]
    assert await deferred(master, *steps) == []
    assert not master.snapshot.instances
    assert len(master.world.disks()) == 1


async def test_an_instance_that_was_changed_is_kept(master: Master) -> None:
    instance = await made(master, start=False)
    await master.change(lambda draft: draft.put(replace(instance, tags=("mine",))))
    steps = [removal(master, instance), UndoStep("forget_instance", {"instance": instance.uuid})]
    assert await deferred(master, *steps) == []
    assert master.instance(NAME).tags == ("mine",)
    master.check_disks_are_those_of_the_configuration()


async def test_a_guest_is_stopped_only_where_it_should_not_run(master: Master) -> None:
    instance = await made(master)
    assert await acts_of(master, of_guest("stop_instance", master, instance, NODES[0])) == []
    elsewhere = of_guest("stop_instance", master, instance, NODES[1])
    assert await acts_of(master, elsewhere) == ["instance_shutdown"]
    await master.change(lambda draft: draft.put(replace(instance, admin_state=AdminState.DOWN)))
    here = of_guest("stop_instance", master, instance, NODES[0])
    assert await acts_of(master, here) == ["instance_shutdown"]


@pytest.mark.parametrize("procedure", ["stop_instance", "end_source"])
async def test_while_a_migration_is_open_its_ends_are_not_touched(
    master: Master, procedure: str
) -> None:
    instance = await made(master)
    await master.change(lambda draft: draft.put(replace(instance, migrating_to=NODES[1])))
    for node in NODES[:2]:
        (why,) = await deferred(master, of_guest(procedure, master, instance, node))
        assert "--cleanup" in why
    assert master.rpc.acts() == []


async def test_a_guest_that_has_come_back_is_not_ended_as_the_source_that_it_was(
    master: Master,
) -> None:
    instance = await made(master, disk_template="file")
    steps = [removal(master, instance), of_guest("end_source", master, instance, NODES[0])]
    assert await deferred(master, *steps) == []
    assert master.rpc.acts() == []
    master.check()


def settling(master: Master, instance: Instance, source: int, target: int) -> UndoStep:
    guest = wire.plain(instance_spec(master.snapshot, instance))
    ends = {"source": NODES[source - 1], "target": NODES[target - 1], "copied": True}
    return UndoStep("settle_migration", {"instance": instance.uuid, "guest": guest, **ends})


async def test_a_migration_that_was_reconciled_since_is_only_cleaned_up(master: Master) -> None:
    instance = await made(master, disk_template="file")
    spec = instance_spec(master.snapshot, instance)
    master.world.node(2).guests[instance.uuid] = Guest(spec, "incoming")
    master.world.node(3).guests[instance.uuid] = Guest(spec, "postmigrate")
    assert await deferred(master, settling(master, instance, 3, 2)) == []
    master.check()
    assert await deferred(master, settling(master, instance, 1, 2)) == []
    master.check()


async def test_the_ends_of_an_instance_that_was_removed_since_are_cleaned_up(
    master: Master,
) -> None:
    instance = await made(master, disk_template="file")
    spec = instance_spec(master.snapshot, instance)
    step = settling(master, instance, 3, 2)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    master.world.node(3).guests[instance.uuid] = Guest(spec, "running")
    (why,) = await deferred(master, step)
    assert "still runs here" in why
    master.world.node(3).guests[instance.uuid] = Guest(spec, "postmigrate")
    assert await deferred(master, step) == []
    assert master.world.where(instance.uuid) == {}
    gone = replace(instance, uuid="00000000-0000-4000-9000-0000000000ff")
    assert await deferred(master, settling(master, gone, 2, 3)) == []


async def test_another_migration_is_not_reconciled_in_place_of_the_old_one(master: Master) -> None:
    instance = await made(master, disk_template="file")
    await master.change(lambda draft: draft.put(replace(instance, migrating_to=NODES[2])))
    (why,) = await deferred(master, settling(master, instance, 1, 2))
    assert "another migration" in why
    assert await deferred(master, settling(master, instance, 1, 3)) == []
    master.check()


async def test_a_device_is_changed_back_only_to_what_is_configured(master: Master) -> None:
    instance = await made(master)
    spec = instance_spec(master.snapshot, instance)

    def nic(action: DeviceAction, **fields: Any) -> UndoStep:
        args = NicChangeArgs(instance=spec, action=action, nic=replace(spec.nics[0], **fields))
        change = {"node": NODES[0], "change": wire.plain(args)}
        return UndoStep("change_nic_of_guest", change)

    assert await acts_of(master, nic(DeviceAction.MODIFY)) == ["hotplug_nic"]
    assert await acts_of(master, nic(DeviceAction.MODIFY, mac="aa:00:00:00:00:99")) == []
    assert await acts_of(master, nic(DeviceAction.REMOVE)) == []
    assert await acts_of(master, nic(DeviceAction.REMOVE, uuid="other")) == ["hotplug_nic"]
    disk = DiskChangeArgs(instance=spec, action=DeviceAction.REMOVE, disk=spec.disks[1])
    back = {"node": NODES[0], "change": wire.plain(disk)}
    assert await acts_of(master, UndoStep("change_disk_of_guest", back)) == []
    memory = wire.plain(MemoryArgs(instance=spec, memory=100))
    step = UndoStep("set_memory_of_guest", {"node": NODES[0], "change": memory})
    assert await acts_of(master, step) == []
    succeeded(await master.run(migrate()))
    assert await acts_of(master, nic(DeviceAction.MODIFY)) == []


async def test_the_locks_are_those_of_the_instances_by_their_names_of_then_and_now(
    master: Master,
) -> None:
    instance = await made(master)
    steps = [
        removal(master, instance),
        of_guest("stop_instance", master, instance, NODES[1]),
        UndoStep("forget_instance", {"instance": instance.uuid}),
        UndoStep("something", {}),
    ]
    await master.change(lambda draft: draft.put(replace(instance, name="new.example.com")))
    instances, nodes, images = locks_of(master.snapshot, steps)
    assert images.is_empty
    assert (instances.level, instances.mode) == (Level.INSTANCE, Mode.EXCLUSIVE)
    assert instances.names == frozenset({NAME, "new.example.com"})
    assert (nodes.level, nodes.mode) == (Level.NODE, Mode.SHARED)
    assert nodes.names == frozenset(NODES[:2])


async def test_a_step_is_described_by_what_it_is_about_and_where(master: Master) -> None:
    instance = await made(master)
    path = instance.disks[0].logical_id[1]
    assert describe(master.snapshot, removal(master, instance)) == (
        f"remove disk of {NAME} on node1.example.com ({path})"
    )
    assert describe(master.snapshot, UndoStep("from_the_future", {"x": 1})) == "from the future"


@pytest.mark.requirement("S75")
async def test_a_disk_that_was_detached_since_stays(master: Master) -> None:
    instance = await made(master, disk_template="file")
    step = removal(master, instance)
    detach = modify(disks=[["detach", 0, {}]], hotplug_if_possible=True)
    succeeded(await master.run(detach))
    assert await acts_of(master, step) == []
    assert len(master.world.disks()) == 2
    master.check_disks_are_those_of_the_configuration()


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_guest_that_was_stopped_is_started_where_it_is_unless_that_is_decided_elsewhere(
    master: Master, is_deferred: bool
) -> None:
    instance = await made(master)
    step = UndoStep("start_again", {"instance": instance.uuid})

    async def acts(change: Instance) -> list[str]:
        master.world.node(1).guests.clear()
        await master.change(lambda draft: draft.put(change))
        master.rpc.reset()
        assert await master.processor.undo(7, [step], deferred=is_deferred) == []
        return master.rpc.acts()

    assert await acts(instance) == ["instance_start"]
    master.rpc.reset()
    assert await master.processor.undo(7, [step], deferred=is_deferred) == []
    assert master.rpc.acts() == [], "it runs already"
    assert await acts(replace(instance, migrating_to=NODES[1])) == []
    down = replace(instance, admin_state=AdminState.DOWN)
    assert await acts(down) == ([] if is_deferred else ["instance_start"])
    moved = replace(instance, primary_node=NODES[2])
    assert await acts(moved) == ["instance_start"]
    assert [call.node_name for call in master.rpc.changing_calls] == [node_name(3)]
    master.world.node(3).guests.clear()
    offline = replace(master.node(3), offline=True)
    await master.change(lambda draft: draft.put(offline))
    assert await acts(moved) == []


async def test_a_start_that_fails_deferred_is_left_to_the_watcher(master: Master) -> None:
    instance = await made(master)
    master.world.node(1).guests.clear()
    master.rpc.fail(1, Fault.REFUSED)
    step = UndoStep("start_again", {"instance": instance.uuid})
    assert await deferred(master, step) == []
    assert master.rpc.acts() == ["instance_start"]
