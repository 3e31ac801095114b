"""Disks of a running guest that move to and from DRBD, with failures at every step, by the real driver of DRBD."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.objects import NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceStartup
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES as UUIDS
from tests.support.units_cluster import Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify
from tests.unit.units.test_drbd import check
from tests.unit.units.test_instance_migrate import come_back, go_silent
from tests.unit.units.test_live_disks import set_offline

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.requirement("G1", "G5", "G11", "G13", "F23", "F24"),
]

ONE, TWO, THREE = (node_name(number) for number in (1, 2, 3))
WAYS = [("plain", "drbd"), ("drbd", "plain")]
CALLS, COMMITS = 9, 11
"""As many as the longer way has."""
SWITCH = {"drbd": 5, "plain": 3}
"""The number of the call that switches the guest."""
OLD = b"what the guest wrote"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    made.install(monkeypatch)
    return made


@pytest.fixture
async def master(kernels: Kernels) -> AsyncIterator[Master]:
    del kernels
    one = await Master.begin(new_world())
    yield one
    await one.end()


def new_world() -> World:
    return World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))


def to(template: str, **fields: Any) -> OpCode:
    remote = TWO if template == "drbd" else None
    return modify(**{"disk_template": template, "remote_node": remote, **fields})


async def made(master: Master, kernels: Kernels, template: str) -> None:
    """A running instance with data, of the hypervisor that can move disks."""
    snode = TWO if template == "drbd" else None
    disks = [DiskRequest(size=8)]
    succeeded(
        await master.run(create(disk_template=template, snode=snode, disks=disks, hypervisor="kvm"))
    )
    with data(master, kernels).open("r+b") as file:
        file.write(OLD)
    master.rpc.reset()


def data(master: Master, kernels: Kernels) -> Path:
    """The file that has the data of the instance on its primary node."""
    [disk] = master.instance(NAME).disks
    layer = (disk.children or (disk,))[0]
    return kernels.of(ONE).directory / str(layer.part(UUIDS[0])[1])


def check_settled(master: Master, kernels: Kernels) -> str:
    """The guest runs with the configured disks, which have its data; nothing else is there; the template."""
    master.rpc.forget_faults()
    master.check_nothing_is_held()
    instance, node = master.instance(NAME), master.world.node(1)
    assert (instance.switching, instance.migrating_to) == (None, None)
    check(master, kernels)
    assert data(master, kernels).read_bytes().startswith(OLD)
    guest = node.guests[instance.uuid]
    assert guest.state == "running"
    [used], [disk] = guest.spec.disks, instance.disks
    assert (used.template, used.own_id) == (disk.template, disk.part(UUIDS[0]))
    assert instance.secondary_nodes == ((UUIDS[1],) if disk.template == "drbd" else ())
    assert node.disk_moves == {}
    return instance.disk_template


@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_the_running_guest_moves_to_and_from_a_mirror(
    master: Master, kernels: Kernels, before: str, after: str
) -> None:
    await made(master, kernels, before)
    [then] = master.instance(NAME).disks
    view = await master.run(to(after))
    assert succeeded(view) == [["disk_template", after]]
    assert "the guest was paused for 9 ms" in said(view)
    assert master.rpc.acts()[SWITCH[after] - 1] == "disk_move_switch"
    assert len(master.rpc.acts()) <= CALLS
    assert check_settled(master, kernels) == after
    assert [disk.uuid for disk in master.instance(NAME).disks] == [then.uuid]
    assert not any(
        child.wipe
        for call in master.rpc.calls
        if call.procedure == "blockdev_create"
        for child in (call.args.disk, *call.args.disk.children)
    )
    if after == "drbd":
        succeeded(await master.run(OpInstanceFailover(instance_name=NAME)))
        assert master.instance(NAME).primary_node == UUIDS[1]


@pytest.mark.requirement("G23", "F34")
@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_no_job_has_the_secret_of_a_mirror(
    master: Master, kernels: Kernels, before: str, after: str
) -> None:
    await made(master, kernels, before)
    seen = list[tuple[str, bytes]]()
    master.rpc.after_act = lambda _number: seen.extend(
        (kind, row) for (kind, _key), row in master.world.disk.rows.items()
    )
    [before_] = master.instance(NAME).disks
    succeeded(await master.run(to(after)))
    [after_] = master.instance(NAME).disks
    [secret] = {before_.secret, after_.secret} - {""}
    assert {kind for kind, row in seen if secret.encode() in row} == {"instance"}
    assert any(b"settle_disk_move" in row for kind, row in seen if kind != "instance")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_CALL])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_after_any_failed_call_the_guest_uses_the_configured_disks(
    master: Master, kernels: Kernels, before: str, after: str, number: int, fault: Fault
) -> None:
    await made(master, kernels, before)
    master.rpc.fail(number, fault)
    await master.run(to(after))
    await master.nothing_is_left()
    is_moved = number > SWITCH[after] or (number == SWITCH[after] and fault is Fault.LOST_ANSWER)
    assert check_settled(master, kernels) == (after if is_moved else before)
    if not is_moved:
        succeeded(await master.run(to(after)))
        assert check_settled(master, kernels) == after


@pytest.mark.sampled(0)
@pytest.mark.parametrize("at", [ONE, TWO])
@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_after_any_failed_command_of_drbd_the_guest_uses_the_configured_disks(
    master: Master, kernels: Kernels, before: str, after: str, at: str
) -> None:
    await made(master, kernels, before)
    node = kernels.of(at)
    for fail_at in range(80):
        node.calls.clear()
        node.fail_at = fail_at
        await master.run(to(after))
        node.fail_at = None
        await master.nothing_is_left()
        if check_settled(master, kernels) == after:
            break
    else:
        pytest.fail("it never went through")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(COMMITS))
@pytest.mark.parametrize(("before", "after"), WAYS[:1])
async def test_after_a_refused_commit_the_guest_uses_the_configured_disks(
    master: Master, kernels: Kernels, before: str, after: str, number: int
) -> None:
    await made(master, kernels, before)
    job_id = await master.submit(to(after))
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    check_settled(master, kernels)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
@pytest.mark.parametrize(("before", "after"), WAYS[:1])
async def test_the_next_master_settles_it_after_any_commit(
    kernels: Kernels, before: str, after: str, number: int, *, written: bool
) -> None:
    master = await Master.begin(new_world())
    await made(master, kernels, before)
    await master.submit(to(after))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_next(master, kernels)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_the_next_master_settles_it_after_any_call(
    kernels: Kernels, before: str, after: str, number: int, *, is_done: bool
) -> None:
    master = await Master.begin(new_world())
    await made(master, kernels, before)
    master.die_at_act(number, is_done=is_done)
    await master.submit(to(after))
    await master.is_dead_after_a_while()
    await check_next(master, kernels)


async def check_next(master: Master, kernels: Kernels) -> None:
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_settled(after, kernels)
    finally:
        await after.end()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(1, CALLS + 1))
@pytest.mark.parametrize(("before", "after"), WAYS)
async def test_a_guest_that_ends_starts_from_the_disks_with_its_last_writes(
    master: Master, kernels: Kernels, before: str, after: str, number: int
) -> None:
    await made(master, kernels, before)

    def end(act: int) -> None:
        if act == number:
            master.world.node(1).guests.clear()

    master.rpc.after_act = end
    await master.run(to(after))
    await master.nothing_is_left()
    master.rpc.after_act = None
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    check_settled(master, kernels)


async def silent_at_the_switch(master: Master, kernels: Kernels) -> None:
    """The node does not answer from the switch on, which it has done."""
    await made(master, kernels, "plain")
    go_silent(master, 1, after_act=SWITCH["drbd"])
    master.rpc.fail(SWITCH["drbd"], Fault.LOST_ANSWER)
    failed(await master.run(to("drbd")))
    assert master.instance(NAME).switching is not None


async def test_the_second_copy_is_kept_until_the_node_of_the_guest_answers(
    master: Master, kernels: Kernels
) -> None:
    await silent_at_the_switch(master, kernels)
    assert len(kernels.volumes(TWO)) == 2
    _, (text, _code) = failed(await master.run(OpNodeRemove(node_name=TWO)))
    assert "migrate --cleanup" in text
    come_back(master, 1)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    await master.nothing_is_left()
    assert check_settled(master, kernels) == "drbd"


async def test_a_guest_of_a_lost_node_continues_with_the_other_copy_of_its_old_mirror(
    master: Master, kernels: Kernels
) -> None:
    disks = [DiskRequest(size=8)]
    given: dict[str, Any] = {"pnode": TWO, "snode": THREE, "disks": disks, "hypervisor": "kvm"}
    succeeded(await master.run(create(disk_template="drbd", **given)))
    master.rpc.reset()
    go_silent(master, 2, after_act=SWITCH["plain"])
    master.rpc.fail(SWITCH["plain"], Fault.LOST_ANSWER)
    failed(await master.run(to("plain")))
    assert master.instance(NAME).switching is not None
    master.world.node(2).guests.clear()
    kernels.of(TWO).is_dead = True
    await set_offline(master, 2)
    succeeded(await master.run(OpInstanceFailover(instance_name=NAME, ignore_consistency=True)))
    after = master.instance(NAME)
    assert (after.switching, after.migrating_to, after.primary_node) == (None, None, UUIDS[2])
    assert kernels.of(THREE).devices[after.disks[0].uuid].role == "Primary"
    assert len(kernels.volumes(THREE)) == 2


async def test_no_other_disk_gets_the_names_of_a_copy_that_may_be_in_use(
    master: Master, kernels: Kernels
) -> None:
    await silent_at_the_switch(master, kernels)
    other = create(
        "web2.example.com", disk_template="drbd", pnode=TWO, snode=THREE,
        disks=[DiskRequest(size=8)], start=False,
    )  # fmt: skip
    succeeded(await master.run(other))
    [disk] = master.instance("web2.example.com").disks
    switching = master.instance(NAME).switching
    assert switching is not None
    assert disk.parts[NodeUuid(UUIDS[1])] != switching.disks[0].parts[NodeUuid(UUIDS[1])]
    assert disk.logical_id != switching.disks[0].logical_id


async def test_a_move_that_would_change_the_protection_is_refused(
    master: Master, kernels: Kernels
) -> None:
    await made(master, kernels, "plain")
    instance = master.instance(NAME)
    grant = {"default": {"recovery": "failover"}}
    cluster = replace(master.snapshot.cluster, beparams=grant)
    await master.change(lambda draft: draft.put(cluster))
    _, (text, _code) = failed(await master.run(to("drbd")))
    assert "would change how automatic recovery protects it" in text
    assert master.instance(NAME) == instance
    assert master.rpc.acts() == []
