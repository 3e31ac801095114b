"""Mirrors that are cut, stale, parted or half filled: one name for each state, and one command that repairs it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import Instance
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.backup import OpBackupExport
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterVerifyGroup
from ganeti.model.opcodes.instance import (
    OpInstanceQueryData,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceGrowDisk,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
)
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.mirrors import (
    OpGroupVerifyDisks,
    OpInstanceDiskStatus,
    OpInstanceRepair,
)
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove, OpNodeEvacuate
from ganeti.simulation.faulty_store import Crash
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.units_cluster import NODES, Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = pytest.mark.virtual_time

ONE, TWO, THREE = (node_name(number) for number in (1, 2, 3))


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    made.install(monkeypatch)
    return made


@pytest.fixture
async def master(kernels: Kernels) -> AsyncIterator[Master]:
    del kernels
    world = World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    one = await Master.begin(world)
    yield one
    await one.end()


@pytest.fixture
async def web(master: Master) -> Instance:
    """A running instance on nodes 2 and 3, with one disk."""
    fields: dict[str, Any] = {"pnode": TWO, "snode": THREE, "disks": [DiskRequest(size=64)]}
    succeeded(await master.run(create(disk_template="drbd", **fields)))
    return master.instance(NAME)


def disk(master: Master) -> str:
    return master.instance(NAME).disks[0].uuid


def role(master: Master, kernels: Kernels, node: str) -> str:
    return kernels.of(node).devices[disk(master)].role


def data(master: Master, kernels: Kernels, node: str) -> str:
    found = kernels.of(node)
    return found.disk_state(found.devices[disk(master)])


def generations(kernels: Kernels) -> set[int]:
    return {copy.generation for copy in kernels.world.copies.values()}


async def statuses(master: Master) -> list[str]:
    return [row["status"] for row in succeeded(await master.run(status()))]


def status() -> OpInstanceDiskStatus:
    return OpInstanceDiskStatus(instance_name=NAME)


def failover(**fields: Any) -> OpInstanceFailover:
    return OpInstanceFailover(instance_name=NAME, **fields)


def keep(node: str) -> OpInstanceRepair:
    return OpInstanceRepair(instance_name=NAME, keep=node)


async def refused(master: Master, op: OpCode) -> str:
    return str(failed(await master.run(op))[1][0])


def where(master: Master) -> dict[str, str]:
    return master.world.where(master.instance(NAME).uuid)


async def part(master: Master, kernels: Kernels) -> None:
    """Both copies are written to while the link is cut; when it works again, DRBD ends the connection."""
    kernels.world.cut(TWO, THREE)
    kernels.of(TWO).write(disk(master))
    node = kernels.of(THREE)
    minor = str(node.devices[disk(master)].minor)
    await node.run(["drbdsetup", "primary", minor])
    await node.run(["drbdsetup", "secondary", minor])
    kernels.world.heal()


@pytest.mark.requirement("G13", "F22")
async def test_nothing_leaves_a_node_whose_link_is_cut(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    kernels.world.cut(TWO, THREE)
    for op in (
        failover(),
        migrate(target_node=None),
        OpInstanceMove(instance_name=NAME, target_node=THREE),
    ):
        text = await refused(master, op)
        assert f"disk 0: the copy on {THREE} is older than the other copy" in text
        assert where(master) == {TWO: "running"}
    assert "--ignore-consistency" in await refused(master, failover())
    assert master.instance(NAME) == web


@pytest.mark.requirement("F22")
@pytest.mark.parametrize("name", ["connecting", "stale"])
async def test_a_cut_link_has_one_name_everywhere(
    master: Master, kernels: Kernels, web: Instance, name: str
) -> None:
    kernels.world.cut(TWO, THREE)
    if name == "connecting":  # a node that has not noticed yet that the other one is gone
        for copy in kernels.world.copies.values():
            copy.generation, copy.bitmap = min(generations(kernels)), 0
    why = f"{TWO} and {THREE} do not reach each other over the replication network"
    assert await statuses(master) == ["connecting", name]
    before = asyncio.get_running_loop().time()
    view = await master.run(OpGroupVerifyDisks(group_name="default"))
    assert asyncio.get_running_loop().time() - before < 1
    assert succeeded(view) == [{}, [], {}]
    activated = await master.run(OpInstanceActivateDisks(instance_name=NAME))
    for text in map(said, (view, await master.run(status()), activated)):
        assert f"disk/0 is {name}" in text
        assert why in text
    assert why in await refused(
        master, OpInstanceReplaceDisks(instance_name=NAME, mode="replace_auto")
    )
    assert f"ERROR: instance {web.name}: disk/0 is {name}" in said(await verify(master))
    kernels.world.heal()
    assert await statuses(master) == ["ok", "ok"]


@pytest.mark.requirement("G13", "F22")
async def test_a_link_that_is_cut_during_a_failover_lets_the_guest_start_again_where_it_was(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    def cut(_act: int) -> None:
        kernels.world.cut(TWO, THREE)

    master.rpc.before_act = cut
    text = await refused(master, failover())
    master.rpc.before_act = None
    assert f"the copy on {THREE} is older than the other copy" in text
    assert where(master) == {TWO: "running"}
    assert master.instance(NAME).all_nodes == web.all_nodes
    await master.nothing_is_left()
    kernels.world.heal()
    assert await statuses(master) == ["ok", "ok"]


async def verify(master: Master) -> Any:
    return await master.run(OpClusterVerifyGroup(group_name="default"))


@pytest.mark.requirement("G13")
@pytest.mark.parametrize("is_up", [True, False])
async def test_a_disk_does_not_grow_while_its_link_is_cut(
    master: Master, kernels: Kernels, web: Instance, is_up: bool
) -> None:
    if not is_up:
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    kernels.world.cut(TWO, THREE)
    text = await refused(master, OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=32))
    name = "stale" if is_up else "connecting"
    assert f"cannot grow while its copies are not connected: disk/0 is {name}" in text
    assert "blockdev_grow" not in master.rpc.acts()
    assert master.instance(NAME).disks == web.disks
    if not is_up:
        assert not any(kernels.of(node).devices for node in (TWO, THREE))


@pytest.mark.requirement("G13", "F22")
@pytest.mark.usefixtures("web")
async def test_a_stopped_guest_starts_where_all_its_data_is_although_the_link_is_cut(
    master: Master, kernels: Kernels
) -> None:
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    kernels.world.cut(TWO, THREE)
    view = await master.run(OpInstanceStartup(instance_name=NAME))
    succeeded(view)
    assert "open on node2.example.com without its other copy" in said(view)
    assert where(master) == {TWO: "running"}
    assert data(master, kernels, THREE) == "Outdated", "no node may use the other copy by mistake"
    kernels.of(TWO).write(disk(master))
    kernels.world.heal()
    assert await statuses(master) == ["ok", "ok"]
    assert len(generations(kernels)) == 1


WORK_ON_DISKS: dict[str, OpCode] = {
    "reinstall": OpInstanceReinstall(instance_name=NAME),
    "rename": OpInstanceRename(instance_name=NAME, new_name="other.example.com", name_check=False, ip_check=False),
    "export": OpBackupExport(instance_name=NAME, target_node=ONE),
    "convert": OpInstanceSetParams(instance_name=NAME, disk_template="plain"),
}  # fmt: skip


@pytest.mark.requirement("G13", "F22")
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("work", list(WORK_ON_DISKS))
async def test_disks_of_a_stopped_guest_are_used_where_all_their_data_is_although_the_link_is_cut(
    master: Master, kernels: Kernels, work: str
) -> None:
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    kernels.world.cut(TWO, THREE)
    succeeded(await master.run(WORK_ON_DISKS[work]))
    assert not any(kernels.of(node).devices for node in (TWO, THREE)), "all disks are closed again"


@pytest.mark.requirement("G13", "F22")
@pytest.mark.parametrize("work", list(WORK_ON_DISKS))
async def test_disks_of_a_stopped_guest_are_not_used_where_they_lack_writes(
    master: Master, kernels: Kernels, web: Instance, work: str
) -> None:
    kernels.world.cut(TWO, THREE)
    kernels.of(TWO).write(disk(master))
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    swapped = replace(
        web, primary_node=NODES[2], secondary_nodes=(NODES[1],), admin_state=AdminState.DOWN
    )
    await master.change(lambda draft: draft.put(swapped))
    assert "is older than the other copy" in await refused(master, WORK_ON_DISKS[work])


@pytest.mark.requirement("G13", "F22")
async def test_a_guest_does_not_start_from_a_copy_that_lacks_writes(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    kernels.world.cut(TWO, THREE)
    kernels.of(TWO).write(disk(master))
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert await statuses(master) == ["closed", "stale"]
    assert "is older than the other copy" in await refused(master, failover())
    swapped = replace(
        web, primary_node=NODES[2], secondary_nodes=(NODES[1],), admin_state=AdminState.DOWN
    )
    await master.change(lambda draft: draft.put(swapped))
    text = await refused(master, OpInstanceStartup(instance_name=NAME))
    assert f"the copy on {THREE} is older than the other copy" in text
    assert where(master) == {}
    succeeded(await master.run(failover()))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert where(master) == {TWO: "running"}


@pytest.mark.requirement("G13", "F22")
@pytest.mark.usefixtures("web")
async def test_a_failover_by_force_keeps_both_copies_until_an_administrator_chooses(
    master: Master, kernels: Kernels
) -> None:
    kernels.world.cut(TWO, THREE)
    kernels.of(TWO).write(disk(master))
    before = generations(kernels)
    view = await master.run(failover(ignore_consistency=True))
    succeeded(view)
    assert f"the guest loses these writes on {THREE}" in said(view)
    assert where(master) == {THREE: "running"}
    kernels.world.heal()
    assert await statuses(master) == ["split-brain", "split-brain"]
    assert generations(kernels) & before, "what the guest wrote before is still there"
    succeeded(await master.run(keep(THREE)))
    assert await statuses(master) == ["ok", "ok"]
    assert where(master) == {THREE: "running"}


@pytest.mark.requirement("G13", "F22")
async def test_a_split_brain_is_named_and_nothing_stops_or_moves_the_guest(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    await part(master, kernels)
    command = f"gnt-instance repair-disks --keep=NODE {NAME}"
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME])))[NAME]
    mirror = shown["disks"][0]["mirror"]
    assert (mirror["state"], mirror["repair"]) == ("split-brain", command)
    looking: list[OpCode] = [status(), OpGroupVerifyDisks(group_name="default")]
    for op in (*looking, OpInstanceActivateDisks(instance_name=NAME)):
        text = said(await master.run(op))
        assert "disk/0 is split-brain" in text
        assert command in text
    assert command in said(await verify(master))
    moving: list[OpCode] = [failover(), migrate(target_node=None)]
    repair = OpInstanceRepair(instance_name=NAME)
    for act in (*moving, repair, OpInstanceReplaceDisks(instance_name=NAME, mode="replace_auto")):
        text = await refused(master, act)
        assert command in text
        assert "split" in text
    assert master.instance(NAME) == web
    assert where(master) == {TWO: "running"}


@pytest.mark.requirement("G13", "F22")
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("kept", [TWO, THREE])
async def test_an_administrator_chooses_one_of_two_copies_that_have_parted(
    master: Master, kernels: Kernels, kept: str
) -> None:
    await part(master, kernels)
    wanted = kernels.of(kept).copy(kernels.of(kept).devices[disk(master)])
    assert wanted is not None
    generation = wanted.generation
    if kept == THREE:
        assert f"runs on {TWO}" in await refused(master, keep(kept))
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
        assert "split-brain" in await refused(master, OpInstanceStartup(instance_name=NAME))
    succeeded(await master.run(keep(kept)))
    assert generations(kernels) == {generation}
    if kept == THREE:
        assert not any(kernels.of(node).devices for node in (TWO, THREE))
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert await statuses(master) == ["ok", "ok"]
    assert where(master) == {TWO: "running"}
    assert "have no split brain" in await refused(master, keep(kept))


@pytest.mark.requirement("G13", "F22")
@pytest.mark.usefixtures("web")
async def test_a_choice_while_the_link_is_cut_lets_the_guest_start_and_is_repeated_later(
    master: Master, kernels: Kernels
) -> None:
    await part(master, kernels)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    kernels.world.cut(TWO, THREE)
    assert "split-brain" in await refused(master, OpInstanceStartup(instance_name=NAME))
    view = await master.run(keep(TWO))
    succeeded(view)
    assert f"gnt-instance repair-disks --keep={TWO} {NAME}" in said(view)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    kernels.world.heal()
    succeeded(await master.run(keep(TWO)))
    assert await statuses(master) == ["ok", "ok"]


@pytest.mark.requirement("G13", "F22")
async def test_the_copy_of_a_living_node_is_chosen_if_the_other_node_is_dead(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    kernels.world.cut(TWO, THREE)
    kernels.of(TWO).write(disk(master))
    succeeded(await master.run(OpGroupVerifyDisks(group_name="default")))
    swapped = replace(
        web, primary_node=NODES[2], secondary_nodes=(NODES[1],), admin_state=AdminState.DOWN
    )
    gone = replace(master.snapshot.nodes[NODES[1]], offline=True)
    master.world.node(2).guests.clear()
    await master.change(lambda draft: (draft.put(swapped), draft.put(gone)))
    text = await refused(master, OpInstanceStartup(instance_name=NAME))
    assert "gnt-instance repair-disks --keep=NODE" in text
    assert f"gnt-instance repair-disks --keep={THREE} {NAME}" in said(await master.run(status()))
    succeeded(await master.run(keep(THREE)))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert where(master) == {THREE: "running"}


@pytest.mark.requirement("G13", "F22")
async def test_no_new_copy_is_filled_from_one_that_lacks_writes(
    master: Master, kernels: Kernels, web: Instance
) -> None:
    kernels.world.cut(TWO, THREE)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    kernels.world.heal()
    on_primary = OpInstanceReplaceDisks(instance_name=NAME, mode="replace_on_primary")
    assert f"the copy on {THREE} is older" in await refused(master, on_primary)
    swapped = replace(web, primary_node=NODES[2], secondary_nodes=(NODES[1],))
    down = replace(swapped, admin_state=AdminState.DOWN)
    await master.change(lambda draft: draft.put(down))
    for op in (
        OpInstanceReplaceDisks(instance_name=NAME, mode="replace_on_secondary"),
        *(new_secondary(ONE), OpInstanceMove(instance_name=NAME, target_node=ONE)),
    ):
        assert f"the copy on {THREE} is older than the other copy" in await refused(master, op)
    assert len(kernels.volumes(TWO)) == 2


@pytest.mark.usefixtures("web")
async def test_a_new_copy_that_is_only_connecting_is_no_split_brain(
    master: Master, kernels: Kernels
) -> None:
    node = kernels.of(THREE)
    await node.run(["drbdsetup", "down", disk(master)])
    meta = next(path for path in node.directory.iterdir() if "meta" in path.name)
    await node.run(
        ["drbdmeta", "--force", "/dev/drbd0", "v08", str(meta), "flex-external", "create-md"]
    )
    kernels.of(TWO).write(disk(master))
    assert await statuses(master) == ["connecting", "incomplete"]


@pytest.mark.usefixtures("web")
async def test_a_volume_that_is_gone_is_named_with_the_command_that_makes_it_again(
    master: Master, kernels: Kernels
) -> None:
    for volume in kernels.volumes(THREE):
        (kernels.of(THREE).directory / volume).unlink()
    command = f"gnt-instance replace-disks -a {NAME}"
    for view in (
        *(await master.run(status()), await verify(master)),
        await master.run(OpGroupVerifyDisks(group_name="default")),
    ):
        assert command in said(view)
    succeeded(await master.run(OpInstanceReplaceDisks(instance_name=NAME, mode="replace_auto")))
    assert await statuses(master) == ["ok", "ok"]


# --- a replacement that a crash cuts short ---

COMMITS = 9


def new_secondary(node: str) -> OpInstanceReplaceDisks:
    return OpInstanceReplaceDisks(
        instance_name=NAME, mode="replace_new_secondary", remote_node=node
    )


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7", "G11", "G13", "F23")
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_the_old_copy_goes_last_wherever_the_master_dies(
    master: Master, kernels: Kernels, number: int, written: bool
) -> None:
    kernels.world.syncs_at_once = False
    job = await master.submit(new_secondary(ONE))
    master.store.inject(Crash(written=written), after=number)
    await asyncio.sleep(300)
    second = await master.restart()
    try:
        for _ in range(10):
            await asyncio.sleep(30)
            kernels.of(TWO).write(disk(second))
            has_new = ONE in nodes_of(second)
            assert len(kernels.volumes(THREE)) == 2, (
                "the old copy went before the new one was filled"
            )
            view = await second.run(migrate(target_node=None))
            assert view.status is not JobStatus.SUCCESS or not has_new
            if view.status is JobStatus.SUCCESS:
                return
        kernels.world.finish()
        await second.nothing_is_left()
        assert kernels.volumes(THREE) == set()
        assert await statuses(second) == ["ok", "ok"]
        assert second.queue.view(job) is not None
        succeeded(await second.run(migrate(target_node=None)))
    finally:
        await second.end()


def nodes_of(master: Master) -> list[str]:
    return [master.snapshot.nodes[uuid].name for uuid in master.instance(NAME).all_nodes]


@pytest.mark.requirement("G13", "F23")
@pytest.mark.parametrize("is_up", [True, False])
async def test_a_replacement_whose_link_is_cut_ends_when_the_link_works_again(
    master: Master, kernels: Kernels, web: Instance, is_up: bool
) -> None:
    if not is_up:
        succeeded(await master.run(OpInstanceShutdown(instance_name=web.name)))
    kernels.world.cut(ONE, TWO)
    failed(await master.run(new_secondary(ONE)))
    assert nodes_of(master) == [TWO, ONE]
    await asyncio.sleep(300)
    assert len(kernels.volumes(THREE)) == 2
    again = await master.run(
        OpNodeEvacuate(node_name=THREE, mode="secondary-only", remote_node=ONE)
    )
    assert succeeded(again) == {"jobs": []}
    assert f"still has to remove replaced of {NAME}" in said(again)
    text = await refused(master, new_secondary(THREE))
    assert "has not cleaned up yet: remove replaced" in text
    assert "the new copy of disk 0" in text
    kernels.world.heal()
    await master.nothing_is_left()
    assert kernels.volumes(THREE) == set()
    assert await statuses(master) == (["ok", "ok"] if is_up else ["closed", "closed"])


@pytest.mark.requirement("F23")
@pytest.mark.usefixtures("web")
async def test_no_guest_moves_before_what_a_job_left_of_it_is_undone(master: Master) -> None:
    node = master.rpc.nodes[THREE]

    def lose(act: int) -> None:
        if act == master.rpc.acts().index("blockdev_create") + 1:
            master.rpc.nodes.pop(THREE, None)

    master.rpc.reset()
    master.rpc.after_act = lose
    failed(
        await master.run(OpInstanceReplaceDisks(instance_name=NAME, mode="replace_on_secondary"))
    )
    master.rpc.after_act = None
    moves: list[OpCode] = [failover(), migrate(target_node=None), new_secondary(ONE)]
    for op in (*moves, OpInstanceMove(instance_name=NAME, target_node=THREE)):
        text = await refused(master, op)
        assert f"has not cleaned up yet: remove disk of {NAME} on {THREE}" in text
        assert "gnt-job pending-undo" in text
    offline = replace(master.snapshot.nodes[NODES[2]], offline=True)
    await master.change(lambda draft: draft.put(offline))
    assert "has not cleaned up yet" not in await refused(master, failover())
    await master.change(lambda draft: draft.put(replace(offline, offline=False)))
    master.rpc.nodes[THREE] = node
    await master.nothing_is_left()
    succeeded(await master.run(migrate(target_node=None)))
