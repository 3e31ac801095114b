"""A template that exists only here goes through everything: two nodes, a layer below, a mirror with its status.

Nothing but its rows, planners, drivers and kind of storage was added for it (`tests/support/memory_disks.py`).
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ganeti.model.names import AdminState, DiskRole, JobStatus
from ganeti.model.objects import Instance, NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceQueryData,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
    OpInstanceReplaceDisks,
)
from ganeti.model.opcodes.instance_system import OpInstanceReinstall
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove, OpNodeEvacuate
from ganeti.rpc.procedures.disks import SyncStatus
from tests.support.fake_rpc import Fault
from tests.support.memory_disks import (
    MEMORY,
    NODES,
    PAIR,
    WRITTEN,
    Memory,
    MemoryNode,
    PairDisk,
    add_templates,
)
from tests.support.units_cluster import NODES as UUIDS
from tests.support.units_cluster import Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "G12")]

FIRST, SECOND, THIRD = UUIDS


@pytest.fixture(autouse=True)
def templates(monkeypatch: pytest.MonkeyPatch) -> None:
    add_templates(monkeypatch)


def new_world() -> World:
    NODES.clear()
    WRITTEN.clear()
    return World(node_type=MemoryNode, enabled_disk_templates=(PAIR.name, MEMORY.name, "diskless"))


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(new_world())
    yield one
    await one.end()


def mirrored(**fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {"disk_template": PAIR.name, "snode": "node2.example.com"}
    return create(**{**given, **fields})


def on(node: NodeUuid) -> Memory:
    return NODES[node_name(UUIDS.index(node) + 1)]


def content(instance: Instance, node: NodeUuid) -> list[int]:
    """How often each disk was written to, by the copy of a node."""
    names = [(disk.children or (disk,))[0].part(node)[1] for disk in instance.disks]
    return [int(on(node).pool.contents[str(name)]) for name in names]


def latest(instance: Instance) -> list[int]:
    return [WRITTEN.get(disk.uuid, 0) for disk in instance.disks]


def roles(instance: Instance, node: NodeUuid) -> set[DiskRole | None]:
    return {part.role for part in on(node).parts.values()} if instance.disks else set()


def check_places(master: Master) -> None:
    """On every node there is what the configuration says, layer by layer, and nothing else."""
    for node in UUIDS:
        volumes, parts = {}, {}
        for disk, nodes in master.snapshot.all_disks():
            for layer in disk.layers() if node in nodes else ():
                if layer.template == MEMORY.name:
                    volumes[layer.part(node)[1]] = layer.size
                else:
                    parts[layer.part(node)[0]] = layer.uuid
        assert on(node).pool.disks.keys() == volumes.keys(), node
        assert {number: part.disk for number, part in on(node).parts.items()} == parts, node


def check(master: Master) -> None:
    """All is as the configuration says; the primary has every byte; copies are open where they should."""
    master.check_nothing_is_held()
    master.check_guests_are_those_of_the_configuration()
    check_places(master)
    for instance in master.snapshot.instances.values():
        assert instance.migrating_to is None
        primary, *others = instance.all_nodes
        assert content(instance, primary) == latest(instance)
        if PAIR.name != instance.disk_template:
            continue
        is_up = instance.admin_state is AdminState.UP
        assert roles(instance, primary) == {DiskRole.PRIMARY if is_up else None}
        for other in others:
            assert roles(instance, other) == {DiskRole.SECONDARY if is_up else None}


async def made(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(mirrored(**fields)))
    master.rpc.reset()
    return master.instance(NAME)


def replace(**fields: Any) -> OpInstanceReplaceDisks:
    given: dict[str, Any] = {"mode": "replace_new_secondary", "remote_node": "node3.example.com"}
    return OpInstanceReplaceDisks(instance_name=NAME, **{**given, **fields})


def renew(mode: str, **fields: Any) -> OpInstanceReplaceDisks:
    return replace(mode=mode, remote_node=None, **fields)


# --- each thing that an instance goes through ---


async def test_it_is_made_on_two_nodes_with_a_part_for_each(master: Master) -> None:
    instance = await made(master)
    assert instance.all_nodes == (FIRST, SECOND)
    assert [disk.parts for disk in instance.disks] == [
        {FIRST: (0,), SECOND: (0,)},
        {FIRST: (1,), SECOND: (1,)},
    ]
    assert len({disk.logical_id[0] for disk in instance.disks}) == 2
    assert content(instance, SECOND) == latest(instance) == [2, 2]  # installed, and started
    check(master)


async def test_an_allocator_places_it_by_the_room_of_the_layers_below(master: Master) -> None:
    on(FIRST).pool.total = 100
    succeeded(await master.run(mirrored(pnode=None, snode=None, iallocator="hail")))
    assert set(master.instance(NAME).all_nodes) == {SECOND, THIRD}
    check(master)


async def test_it_is_stopped_and_started(master: Master) -> None:
    await made(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    check(master)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    check(master)


async def test_it_fails_over_to_its_copy_and_back(master: Master) -> None:
    instance = await made(master)
    for primary, secondary in ((SECOND, FIRST), (FIRST, SECOND)):
        succeeded(await master.run(OpInstanceFailover(instance_name=NAME)))
        instance = master.instance(NAME)
        assert instance.all_nodes == (primary, secondary)
        check(master)


async def test_it_fails_over_from_a_dead_node(master: Master) -> None:
    instance = await made(master)
    node = master.node(1)
    # The master's own node cannot be offline, so the guest goes away from it first.
    succeeded(await master.run(OpInstanceFailover(instance_name=NAME)))
    dead = master.node(2)
    await master.change(lambda draft: draft.put(_offline(draft.nodes[SECOND])))
    master.world.nodes[dead.name].guests.clear()
    succeeded(await master.run(OpInstanceFailover(instance_name=NAME)))
    instance = master.instance(NAME)
    assert instance.primary_node == node.uuid
    assert content(instance, FIRST) == latest(instance) != content(instance, SECOND)
    _, (text, code) = failed(await master.run(migrate()))
    assert (code, "offline" in text) == ("wrong_state", True)


def _offline(node: Any) -> Any:
    from msgspec.structs import replace as changed

    return changed(node, offline=True, master_candidate=False)


async def test_an_old_copy_is_not_failed_over_to(master: Master) -> None:
    instance = await made(master)
    for disk in instance.disks:
        (lower,) = disk.children
        on(SECOND).pool.contents[str(lower.part(SECOND)[1])] = "0"
    _, (text, code) = failed(await master.run(OpInstanceFailover(instance_name=NAME)))
    assert code == "wrong_state"
    assert "disk 0: the copy on node2.example.com is older than the other copy" in text
    check(master)


async def test_it_migrates_to_its_copy(master: Master) -> None:
    instance = await made(master)
    succeeded(await master.run(migrate(target_node=None)))
    instance = master.instance(NAME)
    assert instance.all_nodes == (SECOND, FIRST)
    assert master.world.where(instance.uuid) == {"node2.example.com": "running"}
    check(master)


@pytest.mark.parametrize("op", [migrate, lambda **f: OpInstanceFailover(instance_name=NAME, **f)])
async def test_it_goes_nowhere_where_it_has_no_copy(
    master: Master, op: Callable[..., OpCode]
) -> None:
    await made(master)
    _, (text, code) = failed(await master.run(op(target_node="node3.example.com")))
    assert code == "wrong_input"
    assert "gnt-instance replace-disks -n NODE" in text


async def test_each_layer_grows_below_before_above(master: Master) -> None:
    await made(master)
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=1, amount=256)))
    disk = master.instance(NAME).disks[1]
    assert (disk.size, disk.children[0].size) == (512, 512)
    grown = [
        (call.node_name, call.args.disk.template)
        for call in master.rpc.changing_calls
        if call.procedure == "blockdev_grow"
    ]
    assert grown == [
        ("node2.example.com", "memory"),
        ("node1.example.com", "memory"),
        ("node1.example.com", "memory-pair"),
    ]
    for node in (FIRST, SECOND):
        assert on(node).parts[1].size == on(node).pool.disks[str(disk.children[0].part(node)[1])]
    check(master)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("early_release", [False, True])
async def test_another_node_becomes_the_secondary(
    master: Master, start: bool, early_release: bool
) -> None:
    before = await made(master, start=start)
    view = await master.run(replace(early_release=early_release))
    succeeded(view)
    instance = master.instance(NAME)
    assert instance.all_nodes == (FIRST, THIRD)
    assert content(instance, THIRD) == latest(before)
    size = before.disks[0].size
    assert f"disk 0: 50.0% ({size // 2} of {size} MiB), 1s left" in said(view)
    check(master)


async def test_an_allocator_chooses_the_new_secondary(master: Master) -> None:
    await made(master)
    succeeded(await master.run(replace(remote_node=None, iallocator="hail")))
    assert master.instance(NAME).all_nodes == (FIRST, THIRD)
    check(master)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(
    ("mode", "node"), [("replace_on_primary", FIRST), ("replace_on_secondary", SECOND)]
)
async def test_parts_are_replaced_on_one_node(
    master: Master, mode: str, node: NodeUuid, start: bool
) -> None:
    before = await made(master, start=start)
    succeeded(await master.run(renew(mode, disks=[1])))
    after = master.instance(NAME)
    assert after.disks[0] == before.disks[0]
    old, new = before.disks[1].children[0], after.disks[1].children[0]
    assert old.part(node) != new.part(node)
    assert content(after, FIRST) == content(after, SECOND) == latest(after)
    check(master)


@pytest.mark.parametrize("node", [FIRST, SECOND])
async def test_a_lost_part_is_found_and_recreated(master: Master, node: NodeUuid) -> None:
    instance = await made(master, start=node == SECOND)
    view = await master.run(renew("replace_auto"))
    assert "no disk of web1.example.com needs to be replaced" in said(view)
    lost = str(instance.disks[1].children[0].part(node)[1])
    del on(node).pool.disks[lost]
    succeeded(await master.run(renew("replace_auto")))
    after = master.instance(NAME)
    assert after.disks[0] == instance.disks[0]
    assert content(after, node) == latest(after)
    check(master)


async def test_what_is_lost_on_both_nodes_is_recreated_only_empty(master: Master) -> None:
    instance = await made(master, start=False)
    for node in (FIRST, SECOND):
        del on(node).pool.disks[str(instance.disks[1].children[0].part(node)[1])]
    _, (text, _code) = failed(await master.run(renew("replace_auto")))
    assert "recreate-disks" in text
    _, (text, _code) = failed(await master.run(renew("replace_on_primary")))
    assert "is incomplete" in text


async def test_lost_disks_are_recreated_on_other_nodes(master: Master) -> None:
    await made(master, start=False)
    for node in (FIRST, SECOND):
        on(node).pool.disks.clear()
        on(node).parts.clear()
    WRITTEN.clear()
    nodes = ["node3.example.com", "node2.example.com"]
    succeeded(await master.run(OpInstanceRecreateDisks(instance_name=NAME, nodes=nodes)))
    assert master.instance(NAME).all_nodes == (THIRD, SECOND)
    check(master)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(("target", "nodes"), [(2, (SECOND, FIRST)), (3, (THIRD, FIRST))])
async def test_it_moves_also_to_a_third_node(
    master: Master, start: bool, target: int, nodes: tuple[NodeUuid, ...]
) -> None:
    await made(master, start=start)
    op = OpInstanceMove(instance_name=NAME, target_node=node_name(target))
    succeeded(await master.run(op))
    assert master.instance(NAME).all_nodes == nodes
    check(master)


async def test_a_disk_is_added_and_taken_away(master: Master) -> None:
    await made(master)
    succeeded(await master.run(modify(disks=[["add", -1, {"size": 64}]], hotplug=True)))
    assert len(master.instance(NAME).disks) == 3
    check_places(master)
    succeeded(await master.run(modify(disks=[["remove", 0, {}]], hotplug=True)))
    check_places(master)


async def test_it_is_removed_from_both_nodes(master: Master) -> None:
    await made(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert master.snapshot.instances == {}
    check(master)


async def test_its_disks_are_opened_and_closed_without_its_guest(master: Master) -> None:
    instance = await made(master, start=False)
    succeeded(await master.run(OpInstanceActivateDisks(instance_name=NAME, wait_for_sync=True)))
    assert roles(instance, FIRST) == {DiskRole.PRIMARY}
    succeeded(await master.run(OpInstanceDeactivateDisks(instance_name=NAME)))
    check(master)


async def test_a_synchronisation_that_stands_still_is_not_waited_for_for_ever(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(master, start=False)

    async def stalled(_disk: PairDisk) -> SyncStatus:
        return SyncStatus(up_to_date=False, connected=True, percent=40.0)

    with monkeypatch.context() as patch:
        patch.setattr(PairDisk, "sync_status", stalled)
        view = await master.run(OpInstanceActivateDisks(instance_name=NAME, wait_for_sync=True))
    assert "made no progress for 30 minutes" in str(failed(view)[1])
    assert 25 <= said(view).count("disk 0: 40.0% (") <= 35
    # They stay open: the nodes may go on by themselves.
    succeeded(await master.run(OpInstanceDeactivateDisks(instance_name=NAME)))
    check(master)


async def test_it_is_shown_with_its_secondary_and_status(master: Master) -> None:
    await made(master)
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME])))[NAME]
    assert (shown["pnode"], shown["snodes"]) == (node_name(1), [node_name(2)])
    assert shown["disks"][0]["on_primary"]["sync"]["up_to_date"] is True


async def test_a_node_is_emptied_of_copies(master: Master) -> None:
    await made(master)
    op = OpNodeEvacuate(node_name=node_name(2), mode="secondary-only", remote_node=node_name(3))
    succeeded(await master.run(op))
    await master.idle()
    assert master.instance(NAME).all_nodes == (FIRST, THIRD)
    check(master)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"mode": "replace_all"}, "wrong_input", "mode"),
        ({"remote_node": None}, "wrong_input", "no default allocator"),
        ({"iallocator": "hail"}, "wrong_input", "not both"),
        ({"remote_node": "node2"}, "wrong_state", "has a copy"),
        ({"disks": [1]}, "wrong_input", "gets all disks"),
        ({"mode": "replace_auto"}, "wrong_input", "only replace_new_secondary"),
        (
            {"mode": "replace_on_primary", "remote_node": None, "disks": [2]},
            "wrong_input",
            "disk 2 does not exist",
        ),
    ],
)
async def test_a_wrong_request_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    await made(master)
    _, (message, found) = failed(await master.run(replace(**fields)))
    assert (found, text in message) == (code, True), message
    assert master.rpc.acts() == []


async def test_what_has_one_copy_has_nothing_to_replace(master: Master) -> None:
    succeeded(await master.run(create(disk_template=MEMORY.name)))
    _, (text, _code) = failed(await master.run(replace()))
    assert "have no copy" in text
    _, (text, _code) = failed(
        await master.run(mirrored(snode=None, instance_name="web2.example.com"))
    )
    assert "needs a secondary node" in text


async def test_the_local_template_lives_by_the_same_row(master: Master) -> None:
    succeeded(await master.run(create(disk_template=MEMORY.name)))
    check(master)
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=1)))
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    check(master)


# --- every call failing in turn ---


@dataclass(frozen=True)
class Story:
    """What is done, to an instance that runs or not."""

    op: Callable[[], OpCode]
    start: bool = True
    is_new: bool = False
    loses: bool = False
    before: Callable[[], OpCode] | None = None


def detach() -> OpCode:
    return modify(disks=[["detach", {}]], hotplug=True)


STORIES = {
    "create": Story(mirrored, is_new=True),
    "start": Story(lambda: OpInstanceStartup(instance_name=NAME), start=False),
    "failover": Story(lambda: OpInstanceFailover(instance_name=NAME)),
    "migrate": Story(migrate),
    "grow": Story(lambda: OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=1)),
    "grow down": Story(
        lambda: OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=1), start=False
    ),
    "replace": Story(replace),
    "replace down": Story(replace, start=False),
    "on primary": Story(lambda: renew("replace_on_primary")),
    "on secondary": Story(lambda: renew("replace_on_secondary")),
    "recreate": Story(lambda: OpInstanceRecreateDisks(instance_name=NAME), start=False, loses=True),
    "move": Story(lambda: OpInstanceMove(instance_name=NAME, target_node=node_name(3))),
    "reinstall": Story(lambda: OpInstanceReinstall(instance_name=NAME), start=False),
    "detach": Story(detach),
    "attach": Story(
        lambda: modify(disks=[["attach", {"name": "data"}]], hotplug=True), before=detach
    ),
    "remove": Story(lambda: OpInstanceRemove(instance_name=NAME)),
}


async def begun(story: Story) -> Master:
    master = await Master.begin(new_world())
    if not story.is_new:
        await made(
            master,
            start=story.start,
            disks=[DiskRequest(size=64), DiskRequest(size=32, name="data")],
        )
        if story.loses:
            for node in (FIRST, SECOND):
                on(node).pool.disks.clear()
                on(node).parts.clear()
            WRITTEN.clear()
    if story.before is not None:
        succeeded(await master.run(story.before()))
    master.rpc.reset()
    return master


async def check_the_end(master: Master, story: Story) -> None:
    """Nothing is left over and no byte is lost; the instance can be removed, and then nothing at all is there."""
    await master.nothing_is_left()
    master.check_nothing_is_held()
    instance = master.snapshot.instance_by_name(NAME)
    is_lost = story.loses or (instance is not None and not _is_whole(instance))
    if instance is not None and not isinstance(story.op(), OpInstanceRemove):
        if not is_lost:
            check_places(master)
            assert content(instance, instance.primary_node) == latest(instance)
        assert instance.migrating_to is None or isinstance(story.op(), type(migrate()))
    if instance is not None:
        if instance.migrating_to is not None:
            succeeded(await master.run(migrate(cleanup=True, target_node=None)))
        succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    check(master)


def _is_whole(instance: Instance) -> bool:
    return all(
        str(disk.children[0].part(instance.primary_node)[1]) in on(instance.primary_node).pool.disks
        for disk in instance.disks
    )


async def acts_of(story: Story) -> int:
    master = await begun(story)
    succeeded(await master.run(story.op()))
    count = len(master.rpc.acts())
    await check_the_end(master, story)
    await master.end()
    return count


@pytest.mark.sampled(2)
@pytest.mark.rotated(16)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("name", STORIES)
async def test_any_call_may_fail(name: str, fault: Fault) -> None:
    story = STORIES[name]
    for number in range(1, await acts_of(story) + 1):
        master = await begun(story)
        master.rpc.fail(number, fault)
        view = await master.run(story.op())
        assert view.status in (JobStatus.SUCCESS, JobStatus.ERROR)
        master.rpc.forget_faults()
        await check_the_end(master, story)
        await master.end()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("name", STORIES)
async def test_the_master_may_die_around_any_call(name: str, is_done: bool) -> None:
    story = STORIES[name]
    for number in range(1, await acts_of(story) + 1):
        master = await begun(story)
        master.die_at_act(number, is_done=is_done)
        await master.submit(story.op())
        assert await master.is_dead_after_a_while()
        after = await master.restart()
        await after.idle()
        await check_the_end(after, story)
        await after.end()
