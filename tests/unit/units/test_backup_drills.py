"""Drills of backups as jobs: the machine of the instance, and no trace after any failure."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.locking.levels import Level
from ganeti.model.names import ProofState
from ganeti.model.opcodes.drills import OpBackupDrill
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceStartup
from ganeti.model.opcodes.points import OpBackupPrune, OpBackupRestore
from ganeti.protocols.backup_proof import Judgement
from ganeti.simulation.faulty_store import Crash
from ganeti.units.backup.drill import LUBackupDrill, described_machine
from tests.support.backup_nodes import backup_node, backup_world
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME
from tests.unit.units.test_incremental_backups import save, with_backup, with_data

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "A51")]


@pytest.fixture
def world() -> World:
    return backup_world("plain")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def drill(**fields: Any) -> OpBackupDrill:
    return OpBackupDrill(instance_name=NAME, **fields)


async def test_last_backup_is_booted_with_the_machine_of_the_instance(master: Master) -> None:
    await with_data(master)
    first, last = [succeeded(await master.run(save()))["point"] for _ in range(2)]
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    before = master.instance(NAME)
    found = succeeded(await master.run(drill()))
    assert found == {
        "point": last, "seen": "login:", "seconds": 2.5, "lines": ["web1 login:"], "memory": 512,
        "accelerator": "tcg",
    }  # fmt: skip
    succeeded(
        await master.run(drill(point=first, memory=256, expect="ready", timeout=60, agent=True))
    )
    one, two = backup_node(master.world, 2).drills
    assert (one.point, one.memory, one.less_memory, one.timeout_s) == (last, 512, True, 300.0)
    assert (two.point, two.memory, two.less_memory, two.timeout_s) == (first, 256, False, 60.0)
    assert (two.expect, two.agent) == ("ready", True)
    assert one.hypervisor == before.hypervisor
    assert master.instance(NAME) == before


async def test_backup_that_does_not_boot_fails_the_job_with_its_last_lines(master: Master) -> None:
    point = await with_backup(master)
    backup_node(master.world, 2).damaged = {point}
    view = await master.run(drill())
    _name, (text, *_) = failed(view)
    assert f"backup {point} of {NAME} in node2.example.com:/srv/ganeti/backup did not pass" in text
    assert "without 'login:'" in text
    assert "   GRUB\n   grub>" in said(view)


async def test_instance_is_not_locked(master: Master) -> None:
    """A long drill does not keep its guest from being started or stopped."""
    await with_backup(master)
    asked = LUBackupDrill(drill()).declare_locks(master.config.snapshot)
    assert [one.level for one in asked] == [Level.NODE]


async def test_backup_of_a_removed_instance_is_booted_as_described(master: Master) -> None:
    await with_backup(master, beparams={"maxmem": 768, "minmem": 768, "vcpus": 3})
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    succeeded(await master.run(drill()))
    (one,) = backup_node(master.world, 2).drills
    assert (one.memory, one.vcpus) == (768, 3)


DESCRIPTION = """
[export]
version = 0
timestamp = 1
source = node1
os = tiny
compression = none
[instance]
name = web1.example.com
memory = 128
vcpus = 1
disk_template = plain
hypervisor = {hypervisor}
tags =
nic_count = 0
disk_count = 0
[hypervisor]
{hvparams}
[backend]
maxmem = 300
vcpus = 2
[os]
"""


def test_description_of_a_backup_chooses_nothing_of_the_host(master_snapshot: Any) -> None:
    """A hostile one names files, programs and devices: the cluster's own values stay."""
    evil = (
        "kernel_path = /etc/shadow\ninitrd_path = /etc/shadow\nkvm_path = /tmp/evil\n"
        "kvm_extra = -drive file=/etc/shadow\nvnc_bind_address = 0.0.0.0\nusb_devices = host:1:1\n"
        "mem_path = /etc\ncpu_mask = 0\ndisk_type = scsi\nunknown = 1"
    )
    found = described_machine(master_snapshot, DESCRIPTION.format(hypervisor="kvm", hvparams=evil))
    assert (found.memory, found.vcpus, found.hypervisor) == (300, 2, "kvm")
    assert found.hvparams["disk_type"] == "scsi"
    for name in ("kernel_path", "initrd_path", "kvm_path", "kvm_extra", "vnc_bind_address", "usb_devices", "mem_path"):  # fmt: skip
        assert found.hvparams[name] == ""
    assert found.hvparams["cpu_mask"] == "all"
    assert "unknown" not in found.hvparams


@pytest.mark.parametrize(
    ("hypervisor", "hvparams"),
    [("xen", ""), ("../kvm", ""), ("kvm", "disk_type = /etc/shadow"), ("kvm", "cpu_type = a b")],
)
def test_impossible_description_is_refused(
    master_snapshot: Any, hypervisor: str, hvparams: str
) -> None:
    with pytest.raises(InputError):
        described_machine(
            master_snapshot, DESCRIPTION.format(hypervisor=hypervisor, hvparams=hvparams)
        )


@pytest.fixture
async def master_snapshot(master: Master) -> Any:
    snapshot = master.config.snapshot
    cluster = replace(snapshot.cluster, enabled_hypervisors=("kvm", "fake"))
    return type("View", (), {"cluster": cluster})()


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"memory": 1}, "memory"),
        ({"memory": -5}, "memory"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 10**9}, "timeout"),
        ({"expect": ""}, "expect"),
        ({"expect": " "}, "expect"),
        ({"expect": "a\nb"}, "expect"),
        ({"expect": "\x1b[2J"}, "expect"),
        ({"expect": "x" * 201}, "expect"),
        ({"point": "../x"}, "point"),
        ({"target": "x", "node": "node2.example.com"}, "target"),
        ({"target": "/srv/x"}, "target"),
    ],
)
async def test_wrong_request_is_refused(master: Master, fields: dict[str, Any], wrong: str) -> None:
    await with_backup(master)
    _name, (text, code) = failed(await master.run(drill(**fields)))
    assert code == "wrong_input"
    assert wrong in text
    assert backup_node(master.world, 2).drills == []


async def test_result_that_is_not_recorded_is_a_warning(master: Master) -> None:
    await with_backup(master)
    backup_node(master.world, 2).unrecorded = "read-only"
    view = await master.run(drill())
    succeeded(view)
    assert "the result is not recorded: read-only" in said(view)


async def test_prune_keeps_the_newest_good_backup(master: Master) -> None:
    await with_data(master)
    names = [succeeded(await master.run(save()))["point"] for _ in range(4)]
    succeeded(await master.run(drill(point=names[1])))
    found = succeeded(await master.run(OpBackupPrune(instance_name=NAME, keep_last=1)))
    assert found["removed"] == [names[0], names[2]]
    assert found["kept"][1] == {"point": names[1], "why": ["newest good"]}


async def test_restore_of_a_backup_that_failed_is_warned_about(master: Master) -> None:
    point = await with_backup(master)
    (stored,) = backup_node(master.world, 2).points.values()
    proof = Judgement(state=ProofState.FAILED, why="no login:")
    stored[0].info = replace(stored[0].info, proof=proof)
    view = await master.run(OpBackupRestore(instance_name=NAME))
    succeeded(view)
    assert f"the last check or drill of backup {point} failed: no login:" in said(view)


async def test_missing_backup_is_refused(master: Master) -> None:
    await with_backup(master)
    _name, (text, code) = failed(await master.run(drill(point="20200101-000000")))
    assert code == "unknown_entity"
    assert "20200101-000000" in text


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 3))
async def test_failed_call_leaves_nothing(master: Master, number: int, fault: Fault) -> None:
    await with_backup(master)
    before = master.instance(NAME)
    master.rpc.fail(number, fault)
    await master.run(drill())
    await master.nothing_is_left()
    assert master.instance(NAME) == before
    master.rpc.forget_faults()
    succeeded(await master.run(drill()))


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(5))
async def test_master_that_dies_leaves_nothing(world: World, number: int, written: bool) -> None:
    master = await Master.begin(world)
    await with_backup(master)
    await master.submit(drill())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        succeeded(await after.run(drill()))
    finally:
        await after.end()
