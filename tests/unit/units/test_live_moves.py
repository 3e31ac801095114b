"""Moving an instance with its disks while its guest runs, and the reasons to stop the guest instead."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.model.hooks import Phase
from ganeti.model.names import AdminState
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.rpc.procedures.migration import MigrateArgs
from ganeti.rpc.procedures.streams import SendArgs
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.model import ModelNode
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, migrate
from tests.unit.units.test_drbd import check as check_mirrors
from tests.unit.units.test_drbd import made
from tests.unit.units.test_instance_migrate import runs_at
from tests.unit.units.test_instance_migrate_disks import ACTS, COMMITS, FINISH_TARGET
from tests.unit.units.test_instance_move import check_data, with_data

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5", "G11", "F20", "F23")]

ONE, TWO, THREE = (node_name(number) for number in (1, 2, 3))


def move(**fields: Any) -> OpInstanceMove:
    return OpInstanceMove(instance_name=NAME, **{"target_node": TWO, **fields})


async def test_a_running_guest_keeps_running_and_has_the_hooks_of_a_move(master: Master) -> None:
    await with_data(master)
    master.world.node(1).hooks = {("instance-move", phase): [] for phase in Phase}
    view = await master.run(move(shutdown_timeout=7))
    assert succeeded(view) == [TWO]
    assert [act for act in master.rpc.acts() if act != "hooks_run"] == ACTS
    assert runs_at(master) is master.world.node(2)
    check_data(master)
    assert "Moving instance web1.example.com from node1" in said(view)
    ran = [args for args in master.world.node(1).hooks_ran if args.hook == "instance-move"]
    assert [args.phase for args in ran] == [Phase.PRE, Phase.POST]
    environment = ran[0].environment
    assert environment["GANETI_TARGET_NODE"] == TWO
    assert environment["GANETI_SHUTDOWN_TIMEOUT"] == "7"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_after_any_failed_call_the_guest_and_its_data_are_in_one_place(
    master: Master, number: int, fault: Fault
) -> None:
    await with_data(master)
    master.rpc.fail(number, fault)
    view = await master.run(move())
    if number > FINISH_TARGET:
        succeeded(view)
        await master.nothing_is_left()
    else:
        failed(view)
    has_gone_on = number > FINISH_TARGET or (number == FINISH_TARGET and fault is Fault.LOST_ANSWER)
    assert runs_at(master) is master.world.node(2 if has_gone_on else 1)
    check_data(master)
    succeeded(await master.run(move(target_node=THREE)))
    check_data(master)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_the_data_in_one_place(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(move())
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    if master.instance(NAME).migrating_to is not None:
        succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    runs_at(master)
    check_data(master)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_a_master_that_dies_around_any_call_leaves_the_data_in_one_place(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(move())
    assert await master.is_dead_after_a_while()
    after = await master.restart()
    await after.idle()
    runs_at(after)
    check_data(after)
    await after.end()


def cannot_copy(node: ModelNode) -> None:
    node.mirrors_disks = False


def has_added_memory(node: ModelNode) -> None:
    node.migration_obstacle = "it has added memory"


def has_read_only_disk(node: ModelNode) -> None:
    (guest,) = node.guests.values()
    first, *others = guest.spec.disks
    guest.spec = replace(guest.spec, disks=(replace(first, mode="ro"), *others))


def knows_no_migration(node: ModelNode) -> None:
    def refuse(args: object) -> Any:
        del args
        raise HypervisorError("upstream started it")

    node.on_migration_info = refuse  # type: ignore[method-assign]  # this node says something else


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cannot_copy, "hypervisor fake cannot migrate disks"),
        (has_added_memory, "it has added memory"),
        (has_read_only_disk, "disk 0 of web1.example.com is read-only"),
        (knows_no_migration, "upstream started it"),
    ],
)
async def test_a_guest_that_cannot_be_sent_is_stopped_after_the_job_says_why(
    master: Master, change: Callable[[ModelNode], None], reason: str
) -> None:
    await with_data(master)
    change(master.world.node(1))
    view = await master.run(move())
    assert succeeded(view) == [TWO]
    warning, _, later = said(view).partition("Moving instance")
    assert f"{NAME} is shut down while its disks are copied: " in warning
    assert reason in warning
    assert "copying disk 0" in later
    assert master.rpc.acts()[0] == "instance_shutdown"
    assert runs_at(master) is master.world.node(2)
    check_data(master)


async def test_a_target_that_cannot_receive_the_guest_starts_it_from_its_disks(
    master: Master,
) -> None:
    await with_data(master)
    master.world.node(2).migration_obstacles = ["QEMU is 7.2 here and 8.0 on the guest's node"]
    view = await master.run(move())
    succeeded(view)
    assert f"{TWO}: QEMU is 7.2 here" in said(view)
    assert runs_at(master) is master.world.node(2)
    check_data(master)


async def test_guests_that_must_not_or_need_not_run_are_not_sent(master: Master) -> None:
    await with_data(master, beparams={"always_failover": True})
    view = await master.run(move())
    succeeded(view)
    assert "always_failover is set" in said(view)
    master.rpc.reset()
    view = await master.run(move(target_node=ONE, stop=True))
    succeeded(view)
    assert "is shut down while" not in said(view)
    assert "instance_shutdown" in master.rpc.acts()
    check_data(master)


async def test_a_guest_that_should_be_down_is_stopped(master: Master) -> None:
    await with_data(master)
    await master.change(lambda draft: draft.put(
        replace(master.instance(NAME), admin_state=AdminState.DOWN)
    ))  # fmt: skip
    succeeded(await master.run(move()))
    assert master.world.where(master.instance(NAME).uuid) == {}
    check_data(master)


async def test_an_unfinished_migration_is_named_with_its_remedy(master: Master) -> None:
    uuid = await with_data(master)
    master.world.node(1).guests[uuid].state = "postmigrate"
    _, (text, _code) = failed(await master.run(move()))
    assert f"gnt-instance migrate --cleanup {NAME}" in text


@pytest.mark.parametrize("stop", [False, True])
async def test_the_limit_of_the_bandwidth_reaches_the_sender(master: Master, *, stop: bool) -> None:
    await with_data(master)
    view = await master.run(move(stop=stop, bandwidth=5, compress="gzip"))
    succeeded(view)
    assert ("its data is not compressed" in said(view)) is not stop
    limits = {
        call.args.rate // (1024 * 1024)
        if isinstance(call.args, SendArgs)
        else call.args.bandwidth_mib_s
        for call in master.rpc.calls
        if isinstance(call.args, SendArgs if stop else MigrateArgs)
    }
    assert limits == {5}


async def test_a_migration_has_a_limit_of_its_own(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(migrate(bandwidth=6)))
    (sent,) = [call.args for call in master.rpc.calls if isinstance(call.args, MigrateArgs)]
    assert sent.bandwidth_mib_s == 6
    _, (text, _code) = failed(await master.run(migrate(bandwidth=-1)))
    assert text.startswith("bandwidth: ")


# --- mirrored disks, to a node that has no copy -------------------------------------------------


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    made.install(monkeypatch)
    return made


@pytest.fixture
async def mirrors(kernels: Kernels) -> AsyncIterator[Master]:
    del kernels
    world = World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    one = await Master.begin(world)
    await made(one, disks=[DiskRequest(size=64)])
    one.rpc.reset()
    yield one
    await one.end()


def place_of(master: Master) -> str:
    """Return the node that runs the guest, which the configuration must name."""
    instance = master.instance(NAME)
    assert instance.migrating_to is None
    place = master.snapshot.nodes[instance.primary_node].name
    assert master.world.where(instance.uuid) == {place: "running"}
    return place


async def test_a_running_guest_of_mirrored_disks_goes_to_a_third_node(
    mirrors: Master, kernels: Kernels
) -> None:
    view = await mirrors.run(move(target_node=THREE))
    assert succeeded(view) == [THREE]
    acts = mirrors.rpc.acts()
    assert "migration_run" in acts
    assert not {"instance_shutdown", "instance_start"} & set(acts)
    assert mirrors.instance(NAME).all_nodes == tuple(mirrors.node(at).uuid for at in (3, 1))
    assert place_of(mirrors) == THREE
    check_mirrors(mirrors, kernels)


@pytest.mark.sampled(3)
@pytest.mark.requirement("G13")
@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, 16))
async def test_after_any_failed_call_a_mirrored_guest_runs_and_the_move_can_be_repeated(
    mirrors: Master, kernels: Kernels, number: int, fault: Fault
) -> None:
    mirrors.rpc.fail(number, fault)
    await mirrors.run(move(target_node=THREE))
    mirrors.rpc.forget_faults()
    await mirrors.nothing_is_left()
    if place_of(mirrors) == ONE:
        succeeded(await mirrors.run(move(target_node=THREE)))
    assert place_of(mirrors) == THREE
    check_mirrors(mirrors, kernels)


@pytest.mark.sampled(3)
@pytest.mark.requirement("G13")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(14))
async def test_a_master_that_dies_at_any_commit_leaves_a_mirrored_guest_on_one_node(
    mirrors: Master, number: int, written: bool
) -> None:
    await mirrors.submit(move(target_node=THREE))
    mirrors.store.inject(Crash(written=written), after=number)
    await mirrors.is_dead_after_a_while()
    after = await mirrors.restart()
    await after.idle()
    assert place_of(after) in (ONE, THREE)
    after.check_nothing_is_held()
    await after.end()


@pytest.mark.requirement("G13")
async def test_a_copy_that_lacks_writes_is_no_target_of_a_running_guest(
    mirrors: Master, kernels: Kernels
) -> None:
    for name in list(kernels.of(TWO).devices):
        kernels.of(TWO).drop(name, "StandAlone")
    _, (text, code) = failed(await mirrors.run(move()))
    assert (code, "lost" in text) == ("wrong_state", True)
    assert place_of(mirrors) == ONE
    view = await mirrors.run(move(ignore_consistency=True))
    assert f"{NAME} is shut down while its disks are copied: " in said(view)
