"""Disks that a provider's scripts keep: template `ext`. The interface is upstream's (ganeti-extstorage-interface)."""

import asyncio
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from ganeti.base.errors import HostError, StorageError
from ganeti.base.identifiers import is_absolute_path
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed, Run, run
from ganeti.model.disk_templates import EXTERNAL, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.external.providers import Provider, environment, load
from ganeti.storage.interface import BlockDevice, Snapshots
from ganeti.storage.wipe import device_size

MIB = 1024 * 1024
TIMEOUT_S = 1800.0
"""A provider may have to make a copy."""


class ExternalVolume(BlockDevice, Snapshots):
    """A volume of a provider, as a block device while it is attached."""

    template: ClassVar[DiskTemplate] = EXTERNAL

    def __init__(
        self,
        paths: Paths,
        disk: DiskSpec,
        *,
        run: Run = run,
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
        self._disk, self._run = disk, run
        self._search_path = paths.extstorage_search_path if search_path is None else search_path
        self._link = paths.run / "extstorage" / f"{disk.uuid}"
        self.snapshots = self

    @property
    def path(self) -> str:
        """A link to the device that the provider named last; attaching makes it."""
        return str(self._link)

    async def create(self, size_mib: int) -> None:
        if size_mib <= 0:
            raise StorageError(f"disk {self._disk.index}: a size of {size_mib} MiB is not a size")
        async with self._naming("create"):
            provider = await self._loaded()
            await self._script(provider, "verify")
            await self._script(provider, "create", VOL_SIZE=str(size_mib))

    async def remove(self) -> None:
        async with self._naming("remove"):
            await self._script(await self._loaded(), "remove")
            await asyncio.to_thread(self._link.unlink, missing_ok=True)

    async def open(self, role: DiskRole) -> None:
        async with self._naming("attach"):
            provider = await self._loaded()
            device = await self._attached(provider)
            size = await asyncio.to_thread(_size_of, device)
            if size < self._disk.size * MIB:
                raise StorageError(
                    f"{device} has {size // MIB} MiB instead of {self._disk.size} MiB: data is missing"
                )
            await asyncio.to_thread(self._point_at, device)
            if "open" in provider.scripts:
                alone = str(role is not DiskRole.BOTH)
                await self._script(provider, "open", VOL_OPEN_EXCLUSIVE=alone)

    async def close(self) -> None:
        async with self._naming("detach"):
            provider = await self._loaded()
            if "close" in provider.scripts:
                await self._script(provider, "close")
            await self._script(provider, "detach")
            await asyncio.to_thread(self._link.unlink, missing_ok=True)

    async def grow(self, size_mib: int) -> None:
        async with self._naming("grow"):
            await self._script(await self._loaded(), "grow", VOL_NEW_SIZE=str(size_mib))

    async def size_mib(self) -> int | None:
        """What the attached device has; one that the provider cannot attach does not exist."""
        try:
            provider = await self._loaded()
            device = await self._attached(provider)
        except CommandFailed:
            return None
        async with self._naming("look at"):
            return await asyncio.to_thread(_size_of, device) // MIB

    async def check_identity(self) -> None:
        async with self._naming("use"):
            await self._attached(await self._loaded())

    async def take(self, name: str) -> str:
        async with self._naming("make a snapshot of"):
            provider = await self._loaded()
            if "snapshot" not in provider.scripts:
                raise StorageError(f"provider {self._provider} makes no snapshots")
            size = str(self._disk.size)
            await self._script(provider, "snapshot", VOL_SNAPSHOT_NAME=name, VOL_SNAPSHOT_SIZE=size)
            return await self._attached(provider, VOL_NAME=name)

    async def drop(self, name: str) -> None:
        async with self._naming("drop a snapshot of"):
            provider = await self._loaded()
            await self._script(provider, "detach", VOL_NAME=name)
            await self._script(provider, "remove", VOL_NAME=name)

    # --- means ---

    @asynccontextmanager
    async def _naming(self, verb: str) -> AsyncIterator[None]:
        """Say which disk an error is about."""
        what = f"cannot {verb} disk {self._disk.index} ({self._provider}/{self._name})"
        try:
            yield
        except HostError as err:
            raise StorageError(f"{what}: {err.message}") from err
        except OSError as err:
            raise StorageError(f"{what}: {err.strerror}") from err

    async def _loaded(self) -> Provider:
        return await asyncio.to_thread(load, self._search_path, self._provider)

    async def _script(self, provider: Provider, name: str, **more: str) -> Completed:
        """Run one script to its end; CommandFailed has what it said."""
        env = environment(provider, self._disk, more)
        return await self._run([str(provider.path / name)], timeout_s=TIMEOUT_S, env=env)

    async def _attached(self, provider: Provider, **more: str) -> str:
        """The device that `attach` names in its first line; it may be called again."""
        said = await self._script(provider, "attach", **more)
        first = (said.stdout.decode(errors="replace").splitlines() or [""])[0].strip()
        if not is_absolute_path(first) or not first.startswith("/dev/"):
            raise StorageError(
                f"its script attach printed {first!r:.200}, not the path of a device; only the kernel's devices"
                " are used (access=kernelspace)"
            )
        return first

    def _point_at(self, device: str) -> None:
        self._link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._link.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.symlink_to(device)
        new.rename(self._link)


def _size_of(path: str) -> int:
    """Bytes of a block device; blocks."""
    with Path(path).open("rb") as device:
        if not stat.S_ISBLK(Path(path).stat().st_mode):
            raise StorageError(f"{path} is not a block device")
        return device_size(device.fileno())
