"""One instance's directory of backups on a real file system, used as the node does it, without a network."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.base.backup_ciphers import instance_key, key_id
from ganeti.model.names import Consistency
from ganeti.node.backups.directory import opened
from ganeti.node.backups.ends import ChangesSource, FileReader, ImageSink, open_point
from ganeti.node.backups.program import check, prune
from ganeti.node.carrier.order import ImageOrder, PointOrder
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_manifest import Image, Manifest, image_file
from ganeti.rpc.procedures.backup_keys import BackupKeys

BLOCK = 64 * 1024
DISK = "11111111-0000-4000-8000-000000000000"


KEY = bytes(range(32))


def instance_keys(key: bytes = KEY, instance: str = "web1") -> BackupKeys:
    """Return the same as calls have them."""
    name = key_id(key)
    return BackupKeys(keys={name: instance_key(key, instance).hex()}, current=name)


def keyring(key: bytes = KEY, instance: str = "web1", **fields: Any) -> BackupKeyring:
    """Return the keys of an instance's backups for a backup key, which is the current one."""
    name = key_id(key)
    return BackupKeyring(**{"keys": {name: instance_key(key, instance)}, "current": name, **fields})


@dataclass
class BackupStore:
    """Backups of one disk, and the bytes that each of them must give back."""

    path: Path
    work: Path
    expected: dict[str, bytes] = field(default_factory=dict)
    made: int = 0
    keys: BackupKeyring = NO_KEYS

    def __post_init__(self) -> None:
        self.path.mkdir(exist_ok=True)

    def save(self, data: bytes, *, full: bool = False) -> str:
        """Make a backup of these bytes; it counts once its manifest is there."""
        disk, known = self.work / "disk", self.work / "sums"
        disk.write_bytes(data)
        with opened(self.path, self.keys) as directory, directory.locked():
            last = directory.settle().last
        parent = None if full or (last and last.key_id != self.keys.current) else last
        known.write_bytes(self._sums(parent) if parent else b"")
        with disk.open("rb") as opened_disk, known.open("rb") as opened_sums:
            reader = FileReader(opened_disk.fileno(), len(data))
            source = ChangesSource(reader, opened_sums.fileno() if parent else None)
            point = self.save_changes(source, len(data), full=parent is None)
        self.expected[point] = data
        return point

    def save_changes(self, source: ChangesSource, size: int, *, full: bool) -> str:
        """Make a backup of changes since the last one, or of everything."""
        self.made += 1
        point = f"20261127-{self.made:06}"
        with opened(self.path, self.keys) as directory:
            with directory.locked():
                last = directory.settle().last
            base = last.image(DISK) if last and not full else None
            file = image_file(point, DISK)
            order = ImageOrder(
                directory=str(self.path),
                file=file,
                backing=base.file if base else "",
                disk=DISK,
                size=size,
            )
            with closing(ImageSink(order, self.keys)) as sink:
                for zeros, piece in source.pieces():
                    sink.take(zeros, piece)
                source.finish()
                sink.finish()
            image = Image(disk=DISK, size=0, file=file, length=0, pieces=())
            new = Manifest(
                instance=self.path.name, instance_uuid="i", point=point, number=0, time=float(self.made),
                parent=last.point if last else "", consistency=Consistency.DOWN, disks=(image,), description="",
            )  # fmt: skip
            with directory.locked():
                directory.commit(new)
        return point

    def _sums(self, parent: Manifest) -> bytes:
        order = PointOrder(directory=str(self.path), point=parent.point, disk=DISK, sums=True)
        with open_point(order, 0, self.keys) as source:
            return b"".join(bytes(data) for _, data in source.pieces())

    def prune(self, *points: str) -> None:
        with opened(self.path, self.keys) as directory:
            prune(directory, points, ProgressFile(self.work / "log"))
        for point in points:
            self.expected.pop(point, None)

    def names(self) -> list[str]:
        with opened(self.path, self.keys) as directory:
            return list(directory.contents().points)

    def read(self, point: str, size: int = 0) -> bytes:
        with opened(self.path, self.keys) as directory, directory.locked():
            directory.complete()
        order = PointOrder(directory=str(self.path), point=point, disk=DISK)
        with open_point(order, size or len(self.expected[point]), self.keys) as source:
            return b"".join(bytes(zeros) or bytes(data) for zeros, data in source.pieces())

    def problems(self) -> dict[str, list[str]]:
        with opened(self.path, self.keys) as directory:
            found = check(directory, ProgressFile(self.work / "log"))
        return {one.point: one.problems for one in found}

    def verify(self) -> None:
        """Every backup gives exactly the bytes of its moment."""
        assert self.names() == list(self.expected)
        for point, data in self.expected.items():
            assert self.read(point) == data, point


class Crashed(OSError):
    """The process is gone: nothing is cleaned up. Like an error of the system, because threads expect those."""


STEPS = ("rename", "unlink", "fsync", "pwrite", "write")


@contextmanager
def crash_at(number: int) -> Iterator[Callable[[], bool]]:
    """Let the n-th call that changes a file fail, and all later ones; yields whether it was reached."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            nonlocal count
            count += 1
            if count >= number:
                raise Crashed
            return real(*args, **more)

        return call

    saved = {name: getattr(os, name) for name in STEPS}
    for name, real in saved.items():
        setattr(os, name, counted(real))
    try:
        yield lambda: count >= number
    finally:
        for name, real in saved.items():
            setattr(os, name, real)


def changed(rng: random.Random, data: bytes, *, grows: bool) -> bytes:
    """Return other content: written blocks, zeros, and perhaps a larger disk."""
    new = bytearray(data)
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(new) // BLOCK) * BLOCK
        new[at : at + BLOCK] = bytes(BLOCK) if rng.random() < 0.4 else rng.randbytes(BLOCK)
    if grows and rng.random() < 0.2:
        new += bytes(BLOCK * rng.randrange(1, 9))
    return bytes(new)
