"""Snapshots on a node: all disks while the guest is held, or none."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import Held, HoldsGuests, Options
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.saved_guests import SavedGuest, SavesGuests, TakeDisks
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import Consistency, DiskRole
from ganeti.node import snapshots
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.snapshots import SavedGuestArgs, SaveGuestArgs, TakeSnapshotsArgs
from ganeti.rpc.procedures.streams import SnapshotArgs
from ganeti.storage.interface import BlockDevice

CALL = Call(1, "master", "1/0/1")


class Holding(FakeHypervisor, HoldsGuests, SavesGuests):
    """Its guests can be held and saved; `thaws_early` is a guest that does not stay frozen."""

    is_held = False
    thaws_early = False

    @property
    def options(self) -> Options:
        return Options(holding=self, saved=self)

    @contextlib.asynccontextmanager
    async def held(self, instance: InstanceSpec, limit_s: float) -> AsyncIterator[Held]:
        found = Held(Consistency.AGENT)
        self.is_held = True
        try:
            yield found
        finally:
            self.is_held = False
        if self.thaws_early:
            found.consistency = Consistency.CRASH

    async def save(
        self, instance: InstanceSpec, path: Path, capacity: int, take_disks: TakeDisks
    ) -> SavedGuest:
        path.write_text(f"memory, at most {capacity // 1024} KiB")
        self.is_held = True
        try:
            await take_disks()
        finally:
            self.is_held = False
        return SavedGuest(5, "digest", 12)

    async def misfits(self, instance: InstanceSpec, path: Path) -> list[str]:
        return [f"there is only {path.read_text()}"]

    async def restore(
        self, instance: InstanceSpec, disk_paths: list[str], path: Path, saved: SavedGuest
    ) -> None:
        if saved.sha256 != "digest":
            raise HypervisorError("it is damaged")
        self.write(instance, "paused")


@dataclass
class Storage:
    """Disks whose snapshots are names; `fails` is the one that cannot be made."""

    hypervisor: Holding
    made: list[str] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    fails: str = ""
    able: bool = True
    open: set[str] = field(default_factory=set)
    memory: str = ""
    """The path of the disk for memory."""

    def device(self, _instance: str, disk: DiskSpec) -> BlockDevice:
        return cast("BlockDevice", _Disk(self, disk))


class _Disk:
    def __init__(self, storage: Storage, disk: DiskSpec) -> None:
        self._storage, self._disk = storage, disk
        self.snapshots = self if storage.able else None

    @property
    def path(self) -> str:
        return self._storage.memory if self._disk.uuid == "m" else f"/dev/{self._disk.uuid}"

    @property
    def image(self) -> str:
        return self.path

    async def open(self, role: DiskRole) -> None:
        assert role is DiskRole.PRIMARY
        self._storage.open.add(self._disk.uuid)

    async def close(self) -> None:
        self._storage.open.discard(self._disk.uuid)

    async def check_identity(self) -> None:
        if self._disk.size < 0:
            raise StorageError("the disk has no such volume")

    async def make(self, name: str) -> None:
        if name == self._storage.fails:
            raise StorageError("no space")
        self._storage.made.append(name)
        self._storage.held.append(self._storage.hypervisor.is_held)

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        if name in self._storage.made:
            self._storage.made.remove(name)

    async def roll_back(self, name: str) -> None:
        self._storage.rolled_back.append(f"{self._disk.index}@{name}")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(Holding(Paths(tmp_path)))


def spec(**fields: Any) -> InstanceSpec:
    disks = [
        DiskSpec(uuid=f"d{n}", index=n, size=8, template="plain", logical_id=("g", f"v{n}"))
        for n in range(2)
    ]
    given = {"disks": tuple(disks), "hypervisor": "fake", **fields}
    return InstanceSpec(name="web1", uuid="u", os="o", memory=1, vcpus=1, hvparams={}, **given)


async def take(storage: Storage, *names: str, **fields: Any) -> Consistency:
    handlers = snapshots.handlers({"fake": storage.hypervisor}, storage.device, InstanceLocks())
    args = TakeSnapshotsArgs(instance=spec(**fields), names=list(names))
    return cast("Consistency", (await handlers["snapshots_take"](args, CALL)).consistency)


async def test_a_guest_that_is_down_is_not_held(storage: Storage) -> None:
    assert await take(storage, "a", "b") is Consistency.DOWN
    assert (storage.made, storage.held) == (["a", "b"], [False, False])


async def test_all_snapshots_are_taken_while_the_guest_is_held(storage: Storage) -> None:
    storage.hypervisor.write(spec(), "running")
    assert await take(storage, "a", "b") is Consistency.AGENT
    assert storage.held == [True, True]
    storage.hypervisor.thaws_early = True
    assert await take(storage, "c", "d") is Consistency.CRASH
    assert storage.made == ["a", "b", "c", "d"]


async def test_a_hypervisor_that_cannot_hold_guests_says_crash(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holding, "options", Options())
    storage.hypervisor.write(spec(), "running")
    assert await take(storage, "a", "b") is Consistency.CRASH


async def test_a_repeated_call_replaces_snapshots_of_another_moment(storage: Storage) -> None:
    storage.made = ["a"]
    await take(storage, "a", "b")
    assert storage.made == ["a", "b"]


async def test_if_one_disk_fails_no_snapshot_remains_and_the_guest_goes_on(
    storage: Storage,
) -> None:
    storage.hypervisor.write(spec(), "running")
    storage.fails = "b"
    with pytest.raises(StorageError, match="no space"):
        await take(storage, "a", "b")
    assert storage.made == []
    assert not storage.hypervisor.is_held


async def test_what_cannot_have_snapshots_is_refused_before_any_is_taken(storage: Storage) -> None:
    for names in ([], ["a"], ["a", "b", "c"]):
        with pytest.raises(InputError, match="must be 2 names"):
            await take(storage, *names)
    with pytest.raises(InputError, match="not the name of a snapshot"):
        await take(storage, "a", "../b")
    missing = DiskSpec(uuid="d1", index=1, size=-1, template="plain", logical_id=("g", "v"))
    with pytest.raises(StorageError, match="no such volume"):
        await take(storage, "a", "b", disks=(spec().disks[0], missing))
    storage.hypervisor.write(spec(), "incoming")
    with pytest.raises(HypervisorError, match="unfinished migration"):
        await take(storage, "a", "b")
    storage.able = False
    with pytest.raises(StorageError, match="disk 0 has no snapshots"):
        await take(storage, "a", "b")
    assert storage.made == []


async def test_a_rollback_is_of_one_disk(storage: Storage) -> None:
    handlers = snapshots.handlers({}, storage.device, InstanceLocks())
    args = SnapshotArgs(instance_name="web1", disk=spec().disks[1], name="a")
    await handlers["snapshot_roll_back"](args, CALL)
    assert storage.rolled_back == ["1@a"]


# --- with the memory of the guest ---

MEMORY = DiskSpec(uuid="m", index=2, size=1, template="plain", logical_id=("g", "m"))


async def call(storage: Storage, procedure: str, args: SaveGuestArgs | SavedGuestArgs) -> Any:
    handlers = snapshots.handlers({"fake": storage.hypervisor}, storage.device, InstanceLocks())
    return await handlers[procedure](args, CALL)


def saved(sha256: str = "digest") -> SavedGuestArgs:
    return SavedGuestArgs(instance=spec(), memory=MEMORY, length=5, sha256=sha256)


async def test_a_guest_is_saved_with_its_disks(storage: Storage, tmp_path: Path) -> None:
    storage.memory = str(tmp_path / "memory")
    storage.made = ["a"]
    args = SaveGuestArgs(instance=spec(), names=["a", "b"], memory=MEMORY)
    found = await call(storage, "save_guest", args)
    assert (found.length, found.sha256, found.paused_ms) == (5, "digest", 12)
    assert (storage.made, storage.held, storage.open) == (["a", "b"], [True, True], set())
    assert Path(storage.memory).read_text() == "memory, at most 1024 KiB"
    found = await call(storage, "saved_guest_misfits", saved())
    assert found == ["there is only memory, at most 1024 KiB"]
    storage.fails = "b"
    with pytest.raises(StorageError, match="no space"):
        await call(storage, "save_guest", args)
    assert (storage.made, storage.open) == ([], set())
    storage.memory = "rbd:pool/image"
    with pytest.raises(StorageError, match="access=kernelspace"):
        await call(storage, "save_guest", args)
    assert (storage.made, storage.open) == ([], set())


async def test_a_restored_guest_has_its_disks_open(storage: Storage, tmp_path: Path) -> None:
    storage.memory = str(tmp_path / "memory")
    with pytest.raises(HypervisorError, match="it is damaged"):
        await call(storage, "restore_guest", saved("other"))
    assert storage.open == set()
    await call(storage, "restore_guest", saved())
    assert storage.open == {"d0", "d1"}
    found = await storage.hypervisor.one_running("u")
    assert found is not None
    assert found.state == "paused"


async def test_a_hypervisor_that_cannot_save_guests_says_so(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holding, "options", Options())
    args = SaveGuestArgs(instance=spec(), names=["a", "b"], memory=MEMORY)
    with pytest.raises(HypervisorError, match="'fake' of this node cannot save the memory"):
        await call(storage, "save_guest", args)
