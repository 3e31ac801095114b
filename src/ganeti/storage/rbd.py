"""Disks that are images of Ceph: template `rbd`. QEMU reads them itself, or the kernel maps them.

The `rbd` command manages them; an image carries the UUID of its disk as metadata.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed, Run, run
from ganeti.model.disk_templates import RBD, RBD_SCHEME, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.interface import BlockDevice, Snapshots, StorageFence
from ganeti.storage.sizes import check_size

MIB = 1024 * 1024
TIMEOUT_S = 600.0
CEPH_S = 30.0
BLOCKLIST_S = str(366 * 24 * 3600)
"""A year: the entry is removed when the node has returned. By itself it would end after an hour."""
USERSPACE = "userspace"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}", re.ASCII)
_MARK = "ganeti.disk"
_ADDRESS = re.compile(r"(?:v\d:|any:)?\[?([0-9A-Fa-f.:]+?)\]?:\d+/\d+")
"""An address of a client of Ceph: IP, port, and a number that tells processes apart."""
_WHOLE = re.compile(r":0/0$")
_NOT_FOUND = 2
"""Exit status of `rbd`: ENOENT."""


class RadosImage(BlockDevice, Snapshots, StorageFence):
    """An image in a pool, which every node sees."""

    template: ClassVar[DiskTemplate] = RBD

    def __init__(self, paths: Paths, disk: DiskSpec, *, run: Run = run) -> None:
        del paths
        pool, image = str(disk.params.get("pool", "")), str(disk.logical_id[-1:] or "")
        match disk.logical_id:
            case ("rbd", str(image)) if _NAME.fullmatch(image) and _NAME.fullmatch(pool):
                self._pool, self._image = pool, image
            case _:
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): {disk.logical_id!r:.200} in pool {pool!r:.80} is not"
                    f" ('rbd', image), which template {self.template.name} needs"
                )
        self._disk, self._run = disk, run
        self.snapshots = self.fencing = self

    @property
    def _is_mapped(self) -> bool:
        """True if the kernel's device is used."""
        return self._disk.params.get("access") != USERSPACE

    @property
    def path(self) -> str:
        return self._path(self._image)

    def _path(self, image: str) -> str:
        if self._is_mapped:
            return f"/dev/rbd/{self._pool}/{image}"
        return f"{RBD_SCHEME}{self._pool}/{image}"

    async def create(self, size_mib: int) -> None:
        """Make a new image, which reads as zeros."""
        async with self._naming("create"):
            if size_mib <= 0:
                raise StorageError(f"a size of {size_mib} MiB is not possible")
            found = await self._info()
            if found is None:
                await self._rbd("create", "--size", f"{size_mib}M", "--", self._spec)
                await self._rbd("image-meta", "set", "--", self._spec, _MARK, self._disk.uuid)
            elif await self._mark() != self._disk.uuid:
                raise StorageError("an image of this name exists; remove it if it is not needed")
            elif found < size_mib * MIB:
                raise StorageError(f"it exists with {found // MIB} MiB instead of {size_mib}")

    async def remove(self) -> None:
        async with self._naming("remove"):
            if await self._own() is not None:
                await self._unmap()
                await self._rbd("rm", "--no-progress", "--", self._spec)

    async def open(self, role: DiskRole) -> None:
        del role
        async with self._naming("use"):
            await self._check()
            if self._is_mapped and await self._device() is None:
                await self._rbd("map", "--", self._spec)

    async def close(self) -> None:
        async with self._naming("release"):
            await self._unmap()

    async def grow(self, size_mib: int) -> None:
        async with self._naming("grow"):
            await self._check()
            if (await self._own() or 0) < size_mib * MIB:
                await self._rbd(
                    "resize", "--no-progress", "--size", f"{size_mib}M", "--", self._spec
                )

    async def size_mib(self) -> int | None:
        async with self._naming("look at"):
            found = await self._own()
            return None if found is None else found // MIB

    async def check_identity(self) -> None:
        async with self._naming("use"):
            await self._check()

    async def take(self, name: str) -> str:
        await self.make(name)
        async with self._naming("make a snapshot of"):
            if self._is_mapped:
                await self._rbd("map", "--read-only", "--", self._snapshot(name))
            return self._path(f"{self._image}@{name}")

    async def make(self, name: str) -> None:
        async with self._naming("make a snapshot of"):
            snapshot = self._snapshot(name)
            await self._check()
            await self._rbd("snap", "create", "--no-progress", "--", snapshot)

    async def roll_back(self, name: str) -> None:
        """Ceph keeps the snapshot; an image that is mapped would keep former blocks in its cache."""
        async with self._naming("roll back"):
            snapshot = self._snapshot(name)
            await self._check()
            await self._unmap()
            await self._rbd("snap", "rollback", "--no-progress", "--", snapshot)

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        del unsure
        async with self._naming("drop a snapshot of"):
            snapshot = self._snapshot(name)
            await self._unmap(name)
            try:
                await self._rbd("snap", "rm", "--no-progress", "--", snapshot)
            except CommandFailed as err:
                if err.completed.status != _NOT_FOUND:
                    raise

    # --- fencing ---

    async def fence(self, node: str, addresses: Sequence[str]) -> None:
        """Put the address of the client that holds the exclusive lock on Ceph's blocklist.

        Ceph then gives the lock to the next client that opens the image. Without a lock it is not known under which
        address the node reaches Ceph.
        """
        async with self._naming("keep the lost node from writing"):
            holders = await self._holders()
            if not holders:
                raise StorageError(
                    "no client holds its exclusive lock, so it is not known which one writes; the image needs the"
                    " feature exclusive-lock"
                )
            for address in holders:
                if address not in addresses:
                    raise StorageError(
                        f"its lock is held from {address}, which is not an address of {node}"
                        f" ({', '.join(addresses)})"
                    )
                await self._ceph("osd", "blocklist", "add", address, BLOCKLIST_S)
                if address not in await self._blocklisted():
                    raise StorageError(f"Ceph does not confirm that it refuses {address}")

    async def unfence(self, node: str, addresses: Sequence[str]) -> None:
        del node
        async with self._naming("let the node write again to"):
            for address in sorted(await self._blocklisted() & set(addresses)):
                await self._ceph("osd", "blocklist", "rm", address)

    async def _holders(self) -> list[str]:
        """Return the IP addresses of the clients that hold a lock."""
        said = await self._rbd("lock", "ls", "--format", "json", "--", self._spec)
        found = json.loads(said.stdout or b"[]")
        rows = list(found.values()) if isinstance(found, dict) else found
        return sorted({_ip_of(str(row["address"])) for row in rows})

    async def _blocklisted(self) -> set[str]:
        """Return the IP addresses that Ceph refuses as a whole."""
        said = await self._ceph("osd", "blocklist", "ls", "--format", "json")
        rows = json.loads(said.stdout or b"[]")
        return {_ip_of(row["addr"]) for row in rows if _WHOLE.search(str(row["addr"]))}

    async def _ceph(self, *words: str) -> Completed:
        return await self._run(["ceph", *words], timeout_s=CEPH_S)

    # --- means ---

    def _snapshot(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise StorageError(f"{name!r:.80} is not the name of a snapshot")
        return f"{self._spec}@{name}"

    @property
    def _spec(self) -> str:
        return f"{self._pool}/{self._image}"

    @asynccontextmanager
    async def _naming(self, verb: str) -> AsyncIterator[None]:
        """Name the disk in an error."""
        try:
            yield
        except StorageError as err:
            what = f"cannot {verb} disk {self._disk.index} ({self._spec})"
            raise StorageError(f"{what}: {err.message}") from err
        except CommandFailed as err:
            what = f"cannot {verb} disk {self._disk.index} ({self._spec})"
            raise StorageError(f"{what}: {err.message}") from err

    async def _rbd(self, *words: str) -> Completed:
        return await self._run(["rbd", *words], timeout_s=TIMEOUT_S)

    async def _info(self) -> int | None:
        """Return the bytes of the image, or None if there is none."""
        try:
            said = await self._rbd("info", "--format", "json", "--", self._spec)
        except CommandFailed as err:
            if err.completed.status == _NOT_FOUND:
                return None
            raise
        return int(_parsed(said)["size"])

    async def _mark(self) -> str | None:
        said = await self._rbd("image-meta", "list", "--format", "json", "--", self._spec)
        found = _parsed(said).get(_MARK) if said.stdout.strip() else None
        return None if found is None else str(found)

    async def _own(self) -> int | None:
        """Return the bytes of the disk's own image.

        One without a mark is accepted, for example one of upstream Ganeti.
        """
        size = await self._info()
        if size is None or await self._mark() not in (None, self._disk.uuid):
            return None
        return size

    async def _check(self) -> None:
        size = await self._own()
        if size is None:
            raise StorageError("the disk has no such image")
        check_size("it", size // MIB, self._disk.size)

    async def _device(self, snapshot: str = "") -> str | None:
        """Return the kernel's device of the image, if it is mapped here."""
        said = await self._rbd("showmapped", "--format", "json")
        found = json.loads(said.stdout or b"[]")
        rows = list(found.values()) if isinstance(found, dict) else found
        for row in rows:
            if (row["pool"], row["name"], row.get("snap", "-").strip("-")) == (
                self._pool,
                self._image,
                snapshot,
            ):
                return str(row["device"])
        return None

    async def _unmap(self, snapshot: str = "") -> None:
        if self._is_mapped and (device := await self._device(snapshot)) is not None:
            await self._rbd("unmap", "--", device)


def _ip_of(address: str) -> str:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise StorageError(f"{address!r:.80} is not the address of a client of Ceph")
    return found[1]


def _parsed(said: Completed) -> dict[str, Any]:
    try:
        found = json.loads(said.stdout)
    except ValueError as err:
        raise StorageError(f"the answer of rbd cannot be read: {err}") from err
    return found if isinstance(found, dict) else {}
