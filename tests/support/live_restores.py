"""A live restore on real nodes, each step as the master does it."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ganeti.base.clock import SystemClock
from ganeti.model.disk_templates import RAW, disk_format
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.node.backups.live import LiveRestores, handlers
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Tasks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.live_restores import (
    LIVE_END,
    LIVE_SERVE,
    LIVE_SERVE_END,
    LIVE_START,
    LiveEndArgs,
    LiveServerArgs,
    LiveStartArgs,
    ServePointArgs,
)
from tests.support.backup_store import DISK, BackupStore, instance_keys, keyring
from tests.support.kvm_nodes import Node
from tests.support.patience import patience
from tests.support.qemu_images import check, convert
from tests.support.tiny_guest import disk_heartbeats, open_files

TARGET = "/srv/ganeti/backup"


@dataclass(frozen=True)
class FileDisk:
    """A disk that needs no work to be open."""

    image: str


@dataclass
class Live:
    """A live restore: the guest is on node a, the backup on node b, or on a too."""

    instance: InstanceSpec
    nodes: list[Node]
    real: Path
    point: str
    is_local: bool
    keys: BackupKeys = NO_BACKUP_KEYS
    token: str = "t1"
    calls: int = 0
    parts: list[LiveRestores] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in self.nodes:
            node.paths.data.mkdir(parents=True, exist_ok=True)
            tasks = Tasks(node.paths.tasks, SystemClock())
            keys = TransferKeys(node.paths.transfer_keys, SystemClock())
            made = LiveRestores(
                node.paths, tasks, {"kvm": node.driver}, self.device, InstanceLocks(), keys
            )
            self.parts.append(made)

    def device(self, _name: str, _disk: DiskSpec) -> Any:
        return FileDisk(str(self.real))

    @property
    def source(self) -> int:
        return 0 if self.is_local else 1

    async def call(self, number: int, procedure: Procedure[Any, Any], args: Any) -> Any:
        self.calls += 1
        answer = handlers(self.parts[number])[procedure.name]
        return await answer(args, Call(key=f"7/0/{self.calls}"))

    async def begin(self) -> bool:
        """Serve the backup and start the guest, as the master does; return whether the guest has its own disk."""
        name = self.instance.name
        serving = ServePointArgs(
            target=TARGET, instance_name=name, point=self.point, token=self.token,
            disks=[DISK], keys=self.keys, owner=name, owner_uuid=self.instance.uuid,
        )  # fmt: skip
        starting = LiveStartArgs(instance=self.instance, token=self.token)
        if not self.is_local:
            names = [f"x509-{self.calls:08}{end}" for end in "ab"]
            guest, backup = (
                part.keys.create(key, name) for part, key in zip(self.parts, names, strict=True)
            )
            serving = replace(serving, address="127.0.0.1", key_name=names[1], peer=guest)
        served = await self.call(self.source, LIVE_SERVE, serving)
        if not self.is_local:
            starting = replace(
                starting, address="127.0.0.1", port=served.port, key_name=names[0], peer=backup
            )
        return bool((await self.call(0, LIVE_START, starting)).is_moved)

    async def copy(self, *, bandwidth_mib_s: int = 0) -> None:
        """Begin to copy everything to the disk of the instance."""
        await self.driver.disk_moves.begin(
            self.instance,
            self.instance.disks,
            [str(self.real)],
            token=self.token,
            bandwidth_mib_s=bandwidth_mib_s,
        )

    async def in_step(self) -> None:
        async with asyncio.timeout(60 * patience()):
            while not (await self.driver.disk_moves.status(self.instance, self.token)).in_step:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def finish(self) -> None:
        await self.driver.disk_moves.switch(self.instance, self.token)
        assert await self.driver.disk_moves.end(self.instance, self.token)
        await self.end()

    async def end(self) -> None:
        ended = await self.call(0, LIVE_END, LiveEndArgs(instance=self.instance, token=self.token))
        assert not ended.is_kept
        await self.call(self.source, LIVE_SERVE_END, LiveServerArgs(token=self.token))
        self.driver.disk_moves.forget(self.instance, self.token)

    @property
    def driver(self) -> Any:
        return self.nodes[0].driver

    async def server_is_killed(self) -> None:
        part = self.parts[self.source]
        key = part._file(self.token, "live").with_suffix(".key").read_text()
        assert await part.tasks.end(key)

    async def beats(self, more: int = 3) -> None:
        await self.nodes[0].beats(self.instance, more)

    def uses(self) -> set[str]:
        files = open_files(self.nodes[0].record(self.instance).pid)
        overlay = str(self.nodes[0].paths.live_restore(self.instance.uuid) / f"{DISK}.qcow2")
        known = {overlay: "overlay", str(self.real): "real"}
        return {known[one] for one in files if one in known}

    def check_nothing_is_left(self) -> None:
        for part in self.parts:
            assert part.tasks.running() == []
            assert not part.paths.live_restores.exists() or not list(
                part.paths.live_restores.iterdir()
            )
            assert not list(part.paths.kvm.glob("*.r"))

    def on_disk(self) -> Path:
        """The data of the disk, as a raw file."""
        form = disk_format(self.instance.disks[0].template, self.instance.disks[0].params)
        if form == RAW:
            return self.real
        raw = self.real.with_name("converted")
        check(self.real)
        convert(self.real, raw, form, RAW)
        return raw

    def beats_on_disk(self) -> list[int]:
        return sorted(disk_heartbeats(self.on_disk()))

    async def close(self) -> None:
        """End the guest and all programs."""
        await self.driver.stop(self.instance, 0)
        for part in self.parts:
            for key in part.tasks.running():
                await part.tasks.end(key)
            await part.tasks.close()


def restorable(
    nodes: list[Node],
    instance: InstanceSpec,
    disk: Path,
    real: Path,
    *,
    is_local: bool = False,
    is_encrypted: bool = False,
) -> Live:
    """Return a live restore of an instance, whose disk has this UUID, from a new backup of `disk`."""
    target = nodes[0 if is_local else 1].paths.below(TARGET) / instance.name
    target.mkdir(parents=True)
    store, keys = BackupStore(target, disk.parent), NO_BACKUP_KEYS
    if is_encrypted:
        store.keys, keys = keyring(instance=target.name), instance_keys(instance=target.name)
    point = store.save(disk.read_bytes())
    return Live(instance, nodes, real, point, is_local, keys)


def on_backed_disk(instance: InstanceSpec, form: str = RAW) -> InstanceSpec:
    """Return the instance with the disk of the backups that tests make."""
    return replace(
        instance, disks=(replace(instance.disks[0], uuid=DISK, params={"format": form}),)
    )
