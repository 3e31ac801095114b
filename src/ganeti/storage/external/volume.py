"""Disks of a provider's scripts: template `ext`. The interface is upstream's (ganeti-extstorage-interface)."""

import asyncio
import contextlib
import logging
import re
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

from msgspec.structs import replace

from ganeti.base.call_programs import run_endable
from ganeti.base.errors import HostError, StorageError
from ganeti.base.identifiers import is_absolute_path
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.disk_templates import EXTERNAL, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.differences import copy_differences
from ganeti.storage.external.providers import Provider, environment, load
from ganeti.storage.interface import BlockDevice, Labels, Snapshots, StorageFence
from ganeti.storage.sizes import check_size
from ganeti.storage.wipe import device_size, in_stoppable_thread

MIB = 1024 * 1024
TIMEOUT_S = 1800.0
"""A provider may have to make a copy."""
_NOT_IN_INFO = re.compile(r"^[^A-Za-z0-9_+.]|[^-A-Za-z0-9_+.]")
_INFO_LIMIT = 128
_ATTACHING: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

log = logging.getLogger(__name__)


class ExternalVolume(BlockDevice, Snapshots, Labels, StorageFence):
    """A volume of a provider, as a block device while it is attached."""

    template: ClassVar[DiskTemplate] = EXTERNAL

    def __init__(
        self,
        paths: Paths,
        disk: DiskSpec,
        *,
        search_path: Sequence[Path] | None = None,
    ) -> None:
        match disk.logical_id:
            case (str(provider), str(name)) if name and name.isprintable():
                self._provider, self._name = provider, name
            case _:
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): {disk.logical_id!r:.200} is not (provider, name),"
                    f" which template {self.template.name} needs"
                )
        self._disk = disk
        self._search_path = paths.extstorage_search_path if search_path is None else search_path
        self._links = paths.run / "extstorage"
        self._link = self._link_of(disk)
        self.snapshots = self.labels = self.fencing = self

    @property
    def path(self) -> str:
        """A link to the device that the provider last returned; attaching makes it."""
        return str(self._link)

    async def create(self, size_mib: int) -> None:
        if size_mib <= 0:
            raise StorageError(f"disk {self._disk.index}: a size of {size_mib} MiB is not possible")
        async with self._naming("create"):
            await self._script(await self._loaded(), "create", VOL_SIZE=str(size_mib))

    async def remove(self) -> None:
        """Detach first a volume that this node can attach: otherwise some providers refuse to remove it."""
        async with self._naming("remove"), self._attaching():
            provider = await self._loaded()
            with contextlib.suppress(_NotThere):
                await self._attach(provider, self._disk)
                await self._detach(provider)
            await self._script(provider, "remove")

    async def open(self, role: DiskRole) -> None:
        async with self._naming("attach"), self._attaching():
            provider = await self._loaded()
            device = await self._attached(provider, self._disk)
            try:
                size = await asyncio.to_thread(_size_of, device)
                check_size(device, size // MIB, self._disk.size)
                await asyncio.to_thread(_point_at, self._link, device)
            except BaseException:
                with contextlib.suppress(HostError):
                    await self._script(provider, "detach")
                raise
            if "open" in provider.scripts:
                alone = str(role is not DiskRole.BOTH)
                await self._script(provider, "open", VOL_OPEN_EXCLUSIVE=alone)

    async def close(self) -> None:
        async with self._naming("detach"), self._attaching():
            provider = await self._loaded()
            if "close" in provider.scripts:
                await self._script(provider, "close")
            await self._detach(provider)

    async def grow(self, size_mib: int) -> None:
        """Run the script only for a size that is larger than the present one, as upstream promises it."""
        async with self._naming("grow"):
            present = await self._size()
            if present < size_mib:
                sizes = {"VOL_SIZE": str(present), "VOL_NEW_SIZE": str(size_mib)}
                await self._script(await self._loaded(), "grow", **sizes)

    async def size_mib(self) -> int | None:
        """Return the size of the attached device; a volume that the provider cannot attach does not exist."""
        async with self._naming("look at"):
            try:
                return await self._size()
            except _NotThere:
                return None

    async def check_identity(self) -> None:
        async with self._naming("use"):
            await self._size()

    async def set_info(self, text: str) -> None:
        """Return a name; characters and length are those that upstream allows."""
        async with self._naming("describe"):
            text = _NOT_IN_INFO.sub("_", text)[:_INFO_LIMIT]
            await self._script(await self._loaded(), "setinfo", VOL_METADATA=text)

    # --- fencing ---

    async def fence(self, node: str, addresses: Sequence[str]) -> None:
        async with self._naming("keep the lost node from writing"):
            await self._fence("fence", node, addresses)

    async def unfence(self, node: str, addresses: Sequence[str]) -> None:
        async with self._naming("let the node write again to"):
            await self._fence("unfence", node, addresses)

    async def _fence(self, action: str, node: str, addresses: Sequence[str]) -> None:
        """Both scripts are needed: a node that only one of them knows would be kept out for ever."""
        provider = await self._loaded()
        missing = [one for one in ("fence", "unfence") if one not in provider.scripts]
        if missing:
            raise StorageError(
                f"provider {self._provider} has no script {' and no script '.join(missing)}"
            )
        variables = {"VOL_FENCE_NODE": node, "VOL_FENCE_ADDRESSES": " ".join(addresses)}
        await self._script(provider, action, **variables)

    # --- snapshots ---

    async def can_take(self) -> bool:
        async with self._naming("look at"):
            return "snapshot" in (await self._loaded()).scripts

    async def take(self, name: str) -> str:
        await self.make(name)
        async with self._naming("make a snapshot of"):
            snapshot = self._snapshot(name)
            device = await self._attached(await self._loaded(), snapshot)
            await asyncio.to_thread(_point_at, self._link_of(snapshot), device)
            return device

    async def make(self, name: str) -> None:
        async with self._naming("make a snapshot of"):
            provider, snapshot = await self._loaded(), self._snapshot(name)
            if "snapshot" not in provider.scripts:
                raise StorageError(f"provider {self._provider} does not support snapshots")
            what = {
                "VOL_SNAPSHOT_NAME": name,
                "VOL_SNAPSHOT_SIZE": str(self._disk.size),
                "VOL_SNAPSHOT_UUID": snapshot.uuid,
            }
            await self._script(provider, "snapshot", **what)

    async def roll_back(self, name: str) -> None:
        """Copy the blocks that differ: the interface has no script for a rollback."""
        async with self._naming("roll back"), self._attaching():
            provider, snapshot = await self._loaded(), self._snapshot(name)
            async with (
                self._attached_meanwhile(provider, snapshot) as source,
                self._attached_meanwhile(provider, self._disk) as target,
            ):
                size = self._disk.size * MIB
                await in_stoppable_thread(lambda stop: _copied(source, target, size, stop))

    @asynccontextmanager
    async def _attached_meanwhile(self, provider: Provider, disk: DiskSpec) -> AsyncIterator[str]:
        """Attach a volume for the block, which only then is detached, unless a guest's opening is recorded here."""
        device = await self._attached(provider, disk)
        try:
            yield device
        finally:
            if not self._link_of(disk).is_symlink():
                await self._script(provider, "detach", disk)

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        """Only an unsure snapshot without its link may never have existed: then a failure is not retried."""
        async with self._naming("drop a snapshot of"):
            provider, snapshot = await self._loaded(), self._snapshot(name)
            link = self._link_of(snapshot)
            try:
                if unsure or link.is_symlink():
                    await self._script(provider, "detach", snapshot)
                await self._script(provider, "remove", snapshot)
            except CommandFailed as err:
                if not unsure or link.is_symlink() or not _was_refused(err):
                    raise
                log.warning("snapshot %s of %s: %s", name, self._name, err.message)
            await asyncio.to_thread(link.unlink, missing_ok=True)

    def _snapshot(self, name: str) -> DiskSpec:
        """A separate volume, so that no script confuses it with the guest's, by name or by UUID."""
        uuid = str(uuid5(UUID(self._disk.uuid), name))
        return replace(self._disk, uuid=uuid, logical_id=(self._provider, name), name="")

    # --- means ---

    def _link_of(self, disk: DiskSpec) -> Path:
        return self._links / disk.uuid

    @asynccontextmanager
    async def _naming(self, verb: str) -> AsyncIterator[None]:
        """Name the disk in an error."""
        what = f"cannot {verb} disk {self._disk.index} ({self._provider}/{self._name})"
        try:
            yield
        except HostError as err:
            raise StorageError(f"{what}: {err.message}") from err
        except OSError as err:
            raise StorageError(f"{what}: {err.strerror}") from err

    async def _loaded(self) -> Provider:
        return await asyncio.to_thread(load, self._search_path, self._provider)

    async def _script(
        self, provider: Provider, action: str, disk: DiskSpec | None = None, /, **more: str
    ) -> Completed:
        """Run one script to its end, for a snapshot if one is passed; CommandFailed has its output."""
        env = environment(provider, disk or self._disk, more)
        words, where = [str(provider.path / action)], str(provider.path)
        return await run_endable(words, timeout_s=TIMEOUT_S, env=env, cwd=where)

    async def _size(self) -> int:
        """Return the present size in MiB; a volume that is not open here is detached again. _NotThere."""
        async with self._attaching():
            provider = await self._loaded()
            device = await self._attached(provider, self._disk)
            try:
                return await asyncio.to_thread(_size_of, device) // MIB
            finally:
                if not self._link.is_symlink():
                    await self._script(provider, "detach")

    async def _detach(self, provider: Provider) -> None:
        await self._script(provider, "detach")
        await asyncio.to_thread(self._link.unlink, missing_ok=True)

    @asynccontextmanager
    async def _attaching(self) -> AsyncIterator[None]:
        """Serialise attach and detach: a query of a closed volume must not detach one that was just opened."""
        lock = _ATTACHING.setdefault(self._disk.uuid, asyncio.Lock())
        async with lock:
            yield

    async def _attach(self, provider: Provider, disk: DiskSpec) -> Completed:
        """Run `attach`, which may be called again; _NotThere if it refuses."""
        try:
            return await self._script(provider, "attach", disk)
        except CommandFailed as err:
            if _was_refused(err):
                raise _NotThere(err.message) from err
            raise

    async def _attached(self, provider: Provider, disk: DiskSpec) -> str:
        """Attach a volume; return the device in the first line of its script's output."""
        said = await self._attach(provider, disk)
        first = (said.stdout.decode(errors="replace").splitlines() or [""])[0].strip()
        if not is_absolute_path(first) or not first.startswith("/dev/"):
            raise StorageError(
                f"its script attach printed {first!r:.200}, not the path of a device; only the kernel's devices"
                " are used (access=kernelspace)"
            )
        return first


class _NotThere(StorageError):
    """The provider's script `attach` ended with an error: upstream treats such a volume as missing."""


def _was_refused(err: CommandFailed) -> bool:
    """Return whether the script ran to its end and reported an error, rather than being killed or not started."""
    return err.completed.status > 0 and err.why == f"exit status {err.completed.status}"


def _point_at(link: Path, device: str) -> None:
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = link.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.symlink_to(device)
    new.rename(link)


def _size_of(path: str) -> int:
    """Return the bytes of a block device; blocks."""
    with Path(path).open("rb") as device:
        if not stat.S_ISBLK(Path(path).stat().st_mode):
            raise StorageError(f"{path} is not a block device")
        return device_size(device.fileno())


def _copied(source: str, target: str, size: int, is_stopped: Callable[[], bool]) -> None:
    """Give one block device the content of another; blocks."""
    for path in (source, target):
        if (found := _size_of(path)) < size:
            raise StorageError(f"{path} has {found} bytes instead of {size}")
    with Path(source).open("rb") as reading, Path(target).open("r+b") as writing:
        copy_differences(reading.fileno(), writing.fileno(), size, is_stopped)
