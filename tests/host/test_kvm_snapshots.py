"""A real guest that writes while its disks are copied: nothing changes meanwhile, and all fits together."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from ganeti.hypervisor.abilities import Held
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import Consistency
from ganeti.node import instance as instances
from ganeti.node import snapshots
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.instances import StartArgs
from ganeti.rpc.procedures.snapshots import (
    GuestSaved,
    SavedGuestArgs,
    SaveGuestArgs,
    SnapshotsTaken,
    TakeSnapshotsArgs,
)
from ganeti.rpc.procedures.streams import SnapshotArgs
from ganeti.storage.file import FileDisk
from tests.support.kvm_nodes import Node, boot
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    tiny_instance,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G11"),
]


@pytest.mark.parametrize("has_agent", [True, False])
async def test_a_held_guest_writes_nothing_and_then_goes_on(
    node: Node, guest: Path, disk: Path, *, has_agent: bool
) -> None:
    instance = tiny_instance(guest, use_guest_agent=has_agent)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    if has_agent:
        assert await node.driver.agents.agent_info(instance) is not None
    copies: list[bytes] = []
    taken: list[Held] = []
    for _ in range(3):
        async with node.driver.holding.held(instance, 60) as held:
            assert await node.state(instance) == "paused"
            first = disk.read_bytes()
            await asyncio.sleep(0.5)
            assert disk.read_bytes() == first
        taken.append(held)
        copies.append(first)
        await node.beats(instance)
        assert await node.state(instance) == "running"
    wanted = Consistency.AGENT if has_agent else Consistency.CRASH
    assert [one.consistency for one in taken] == [wanted] * 3
    lengths = []
    for number, content in enumerate(copies):
        copy = disk.with_name(f"copy{number}")
        copy.write_bytes(content)
        beats = sorted(disk_heartbeats(copy))
        assert are_consecutive(beats)
        lengths.append(beats[-1])
    assert lengths == sorted(set(lengths)), "the guest went on after each"
    assert max(disk_heartbeats(disk)) > lengths[-1]
    await node.driver.stop(instance, 0)


async def test_a_daemon_that_dies_while_it_holds_a_guest_leaves_it_running(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    files = node.files(instance)
    found = node.driver.holding.guests.here(instance)
    node.driver.holding.guests.change(found, resume_at=2**40)
    await node.ask(instance)("stop")
    await node.driver.upkeep.look_after()
    assert await node.state(instance) == "paused"
    await node.driver.upkeep.holding.resume_in_time(files, at_once=True)
    assert await node.state(instance) == "running"
    await node.beats(instance)
    await node.driver.stop(instance, 0)


XFS_MIB = 384
STORAGE = "/srv/ganeti/file-storage"


@pytest.fixture
def storage(node: Node, disk_path: Path) -> Iterator[Path]:
    """The directory of the node's disks, on a file system that shares blocks."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists() or not shutil.which("mkfs.xfs"):
        pytest.skip("an XFS needs root, loop devices and xfsprogs")
    image, where = disk_path / "xfs", node.paths.below(STORAGE)
    with image.open("wb") as file:
        file.truncate(XFS_MIB << 20)
    where.mkdir(parents=True)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True, timeout=60)
    done = subprocess.run(
        ["mount", "-o", "loop", str(image), str(where)],
        check=False,
        capture_output=True,
        timeout=60,
    )
    if done.returncode:
        pytest.skip(f"this kernel does not mount an XFS: {done.stderr!r}")
    node.paths.etc.mkdir(parents=True, exist_ok=True)
    node.paths.file_storage_paths.write_text(f"{STORAGE}\n")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True, timeout=60)


def disk_in_file(spec: DiskSpec, form: str) -> DiskSpec:
    """The disk as a file of this format on the XFS."""
    name = ("loop", f"{STORAGE}/web1/disk0")
    return replace(
        spec, logical_id=name if form == "raw" else (*name, form), params={"format": form}
    )


def convert(source: Path, target: Path, forms: tuple[str, str]) -> None:
    subprocess.run(
        ["qemu-img", "convert", "-n", "-f", forms[0], "-O", forms[1], source, target],
        check=True,
        timeout=60,
    )


def last_beat(file: Path, form: str, disk: Path) -> int:
    """The last that a guest has written to a file; an image must be sound."""
    if form != "raw":
        subprocess.run(["qemu-img", "check", "-q", "-f", form, file], check=True, timeout=60)
    convert(file, disk, (form, "raw"))
    beats = sorted(disk_heartbeats(disk))
    assert are_consecutive(beats)
    return beats[-1]


@pytest.mark.parametrize("form", ["raw", "qcow2"])
@pytest.mark.requirement("G12")
async def test_a_guest_that_writes_is_rolled_back_to_the_bytes_of_its_snapshot(
    node: Node, guest: Path, disk: Path, storage: Path, form: str
) -> None:
    """Twice, on an XFS: the second rollback is to the newer snapshot, which the first has kept."""
    plain = tiny_instance(guest)
    mine = disk_in_file(plain.disks[0], form)
    instance = replace(plain, disks=(mine,))

    def device(_name: str, disk: DiskSpec) -> FileDisk:
        return FileDisk(node.paths, disk)

    calls = snapshots.handlers({"kvm": node.driver}, device, InstanceLocks())

    async def call(procedure: str, name: str) -> object:
        args: TakeSnapshotsArgs | SnapshotArgs = (
            TakeSnapshotsArgs(instance=instance, names=[name])
            if procedure == "snapshots_take"
            else SnapshotArgs(instance_name=instance.name, disk=mine, name=name)
        )
        return await calls[procedure](args, Call(1, "master", "1/0/1"))

    drive = device(instance.name, mine)
    await drive.create(64)
    assert await drive.snapshots.can_take()
    file = Path(drive.image)
    install(guest, disk, instance.name)
    convert(disk, file, ("raw", form))
    await boot(node, instance, file)
    moments = {}
    for name in ("s1", "s2"):
        await node.beats(instance)
        assert await call("snapshots_take", name) == SnapshotsTaken(consistency=Consistency.CRASH)
        moments[name] = Path(f"{file}.{name}").read_bytes()
    await node.beats(instance)
    await node.driver.stop(instance, 0)
    latest = last_beat(file, form, disk)
    for name, content in moments.items():
        assert Path(f"{file}.{name}").read_bytes() == content, "the guest has changed its snapshot"
        await call("snapshot_roll_back", name)
        assert file.read_bytes() == content
        assert last_beat(file, form, disk) < latest
    await boot(node, instance, file)
    await node.beats(instance)
    assert Path(f"{file}.s2").read_bytes() == moments["s2"]
    await node.driver.stop(instance, 0)
    assert last_beat(file, form, disk) > 0
    for name in moments:
        await drive.snapshots.drop(name, unsure=False)
    await drive.remove()
    assert list(storage.iterdir()) == []


@pytest.mark.soak
@pytest.mark.requirement("G12")
async def test_a_guest_continues_from_the_memory_on_a_disk_beside_its_own(
    node: Node, guest: Path, storage: Path
) -> None:
    """The whole of a node: disks and memory of one moment on an XFS, rolled back, restored, removed."""
    plain = tiny_instance(guest)
    mine = replace(plain.disks[0], logical_id=("loop", f"{STORAGE}/web1/disk0"))
    instance = replace(plain, disks=(mine,))
    memory = replace(
        mine, uuid=str(uuid4()), index=1, size=200, logical_id=("loop", f"{STORAGE}/web1/memory")
    )

    def device(_name: str, disk: DiskSpec) -> FileDisk:
        return FileDisk(node.paths, disk)

    calls: Handlers = {}
    locks = InstanceLocks()
    for made in (snapshots, instances):
        calls = {**calls, **made.handlers({"kvm": node.driver}, device, locks)}
    call = Call(1, "master", "1/0/1")
    for disk in (mine, memory):
        await device(instance.name, disk).create(disk.size)
    drive = device(instance.name, mine)
    install(guest, Path(drive.path), instance.name)
    await boot(node, instance, Path(drive.path))
    await node.beats(instance)
    save = SaveGuestArgs(instance=instance, names=["s1"], memory=memory)
    saved = await calls["save_guest"](save, call)
    assert isinstance(saved, GuestSaved)
    assert (await drive.snapshots.can_take(), saved.paused_ms < 20_000) == (True, True)
    await node.beats(instance)
    moment = max(disk_heartbeats(Path(f"{drive.path}.s1")))
    await node.driver.stop(instance, 0)
    back = SnapshotArgs(instance_name=instance.name, disk=mine, name="s1")
    await calls["snapshot_roll_back"](back, call)
    args = SavedGuestArgs(
        instance=instance, memory=memory, length=saved.length, sha256=saved.sha256
    )
    assert await calls["saved_guest_misfits"](args, call) == []
    await calls["restore_guest"](args, call)
    await calls["instance_start"](StartArgs(instance=instance), call)
    await node.beats(instance)
    spoken = heartbeats(node.console(instance))
    assert are_consecutive(spoken)
    # It may have been paused between its write to the disk and the line on its console.
    assert spoken[0] - moment in (0, 1, 2)
    await node.driver.stop(instance, 0)
    assert are_consecutive(sorted(disk_heartbeats(Path(drive.path))))
    await drive.snapshots.drop("s1", unsure=False)
    for disk in (mine, memory):
        await device(instance.name, disk).remove()
    assert list(storage.iterdir()) == []
