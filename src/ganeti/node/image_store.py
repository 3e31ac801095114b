"""Answers calls that fill the image store of this node, and that write an image of it to a file.

An image has the form of an export: its description, and a raw disk with holes for each of its disks, in whole MiB.
This module does the work as a program (`python -m ganeti.node.image_store LOG ROOT WORD ...`), which is a task of the
node.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.files import is_full, sync_directory
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.images.convert import (
    MIB,
    Report,
    convert_package,
    describe,
    description_text,
    dump_name,
    pieces,
)
from ganeti.images.download import fetch
from ganeti.images.ova import pack, read_export
from ganeti.images.package import Member, OpenFile, open_beside, opened_package
from ganeti.model.image_source import IMAGE_DIRECTORY, OVA, QCOW2, Digest, is_url
from ganeti.node.backups.images import ImageWriter
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.export_directory import CONFIG, ExportDirectory
from ganeti.node.images import opened_source
from ganeti.node.program_reports import reported
from ganeti.node.tasks import Tasks
from ganeti.protocols.export_description import ExportDescription, ExportedDisk
from ganeti.protocols.qcow2 import CLUSTER
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.images import IMAGE_STORE, IMAGE_WRITE, ImageFileArgs, StoreArgs
from ganeti.storage.confinement import AllowedDirectories, Location

_STORE, _WRITE = "store", "write"
_FETCHED = "fetched"
_KEPT_FREE = 20
"""A download leaves this part of the file system free: one twentieth."""


def handlers(paths: Paths, tasks: Tasks, images: ExportDirectory) -> Handlers:
    """Return the handlers."""
    store = _Store(paths, tasks, images)
    return {IMAGE_STORE.name: store.store, IMAGE_WRITE.name: store.write}


@dataclass(frozen=True)
class _Store:
    paths: Paths
    tasks: Tasks
    images: ExportDirectory

    async def store(self, args: StoreArgs, call: Call) -> Nothing:
        directory = await asyncio.to_thread(self.images.directory, args.export, unfinished=True)
        return await self._run(call, _STORE, str(directory), args.source, args.format, args.digest)

    async def write(self, args: ImageFileArgs, call: Call) -> Nothing:
        directory = await asyncio.to_thread(self.images.directory, args.export, unfinished=False)
        return await self._run(call, _WRITE, str(directory), args.path, args.format, args.name)

    async def _run(self, call: Call, *words: str) -> Nothing:
        argv = [sys.executable, "-m", __name__]
        await reported(self.paths, self.tasks, call, argv, (str(self.paths.root), *words))
        return Nothing()


# --- from a source to the store ---


class _Source(NamedTuple):
    """An opened directory with the source, and the name of the source in it."""

    open_file: OpenFile
    name: str


def store(
    paths: Paths, directory: Path, source: str, form: str, digest: str, *, report: Report
) -> None:
    """Write the disks of a source and their description into an unfinished image; GanetiError or OSError."""
    with (
        _opened(paths, directory, source, Digest.parse(digest), report) as opened,
        opened_package(opened.open_file, opened.name, form) as package,
    ):
        export = describe(package)
        if not export.disks:
            raise InputError("has no disks", "source")
        convert_package(package, directory, report)
    disks = tuple(
        _completed(directory, dump_name(number), disk, report)
        for number, disk in enumerate(export.disks)
    )
    config = directory / CONFIG
    config.write_text(description_text(replace(export, disks=disks)))
    with config.open("rb") as file:
        os.fsync(file.fileno())
    sync_directory(directory)


@contextlib.contextmanager
def _opened(
    paths: Paths, directory: Path, source: str, digest: Digest | None, report: Report
) -> Iterator[_Source]:
    if not is_url(source):
        with opened_source(paths, source) as (beside, name):
            if digest is not None:
                _check_file(beside, name, digest, report)
            yield _Source(beside, name)
        return
    fetched = directory / _FETCHED
    try:
        _fetch(source, fetched, digest, report)
        with _directory(directory) as opened:
            yield _Source(lambda name: open_beside(opened, name), _FETCHED)
    finally:
        fetched.unlink(missing_ok=True)


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _fetch(address: str, target: Path, digest: Digest | None, report: Report) -> None:
    """Download a file with exactly this digest."""
    if digest is None:
        raise InputError("is required for a URL", "digest")
    space = shutil.disk_usage(target.parent)
    with target.open("xb") as file:
        digesting = _Digesting(file, digest, report)
        fetch(address, digesting, max(0, space.free - space.total // _KEPT_FREE))
        digesting.check(address)


class _Digesting:
    """A file that is written once, from the beginning to the end, and its digest."""

    def __init__(self, file: IO[bytes], digest: Digest, report: Report) -> None:
        self._file, self._wanted, self._report = file, digest, report
        self._digest, self._length = hashlib.new(digest.algorithm), 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._length += len(data)
        self._report("download", self._length, 0)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def check(self, what: str) -> None:
        """Refuse another digest than the wanted one."""
        _same(what, self._digest.hexdigest(), self._wanted)


def _check_file(open_file: OpenFile, name: str, digest: Digest, report: Report) -> None:
    descriptor = open_file(name)
    try:
        member = Member(name, descriptor, 0, os.fstat(descriptor).st_size)
        found = _digest(member, digest.algorithm, report)
    finally:
        os.close(descriptor)
    _same(name, found, digest)


def _same(what: str, found: str, wanted: Digest) -> None:
    if found != wanted.digits:
        raise InputError(
            f"is {found} for {what}, not {wanted.digits}: the file differs or is damaged", "digest"
        )


def _digest(member: Member, algorithm: str, report: Report) -> str:
    digest = hashlib.new(algorithm)
    for offset, data in pieces(member, with_holes=True):
        digest.update(data)
        report(f"checking {member.name}", offset + len(data), member.length)
    return digest.hexdigest()


def _completed(directory: Path, name: str, disk: ExportedDisk, report: Report) -> ExportedDisk:
    """Return the disk with the digest of its content, which is now in whole MiB; an empty one is a hole."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory / name, flags, 0o600)
    try:
        os.ftruncate(descriptor, disk.size * MIB)
        member = Member(name, descriptor, 0, disk.size * MIB)
        sha256 = _digest(member, "sha256", report)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return replace(disk, dump=name, sha256=sha256)


# --- from the store to a file ---


def write(
    paths: Paths, directory: Path, path: str, form: str, name: str, *, report: Report
) -> None:
    """Write an image to a new file, which appears completely or not at all."""
    export = read_export(directory)
    allowed = AllowedDirectories.read(
        paths, shared=False, source=paths.image_paths, default=IMAGE_DIRECTORY
    )
    with allowed.enter(path) as place:
        if os.access(place.name, os.F_OK, dir_fd=place.directory, follow_symlinks=False):
            raise InputError(f"{path} exists; choose another name, or remove it", "path")
        new = f".{place.name}.new"
        target = Path(f"/proc/self/fd/{place.directory}") / new
        target.unlink(missing_ok=True)
        try:
            if form == OVA:
                pack(directory, export, target, name, report=report)
            else:
                _write_disk(directory, export, target, form, report)
            _give_name(place, new, path)
        finally:
            target.unlink(missing_ok=True)
            os.fsync(place.directory)


def _give_name(place: Location, new: str, path: str) -> None:
    try:
        os.link(new, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except FileExistsError as err:
        raise InputError(f"{path} exists; choose another name, or remove it", "path") from err


def _write_disk(
    directory: Path, export: ExportDescription, target: Path, form: str, report: Report
) -> None:
    (disk,) = export.disks  # the caller has checked that there is one
    with _directory(directory) as opened:
        source = open_beside(opened, disk.dump)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(target, flags, 0o600)
        try:
            member = Member(disk.dump, source, 0, disk.size * MIB)
            if form == QCOW2:
                _write_qcow2(member, file, report)
            else:
                _write_raw(member, file, report)
        finally:
            os.close(file)
    finally:
        os.close(source)


def _blocks(member: Member, report: Report) -> Iterator[tuple[int, bytes]]:
    """Yield the clusters that are not zeros."""
    for offset, data in pieces(member):
        for at in range(0, len(data), CLUSTER):
            block = data[at : at + CLUSTER]
            if block.strip(b"\0"):
                yield offset + at, block
        report(member.name, offset + len(data), member.length)


def _write_qcow2(member: Member, file: int, report: Report) -> None:
    writer = ImageWriter(file, member.length, "")
    try:
        for offset, block in _blocks(member, report):
            writer.extent(offset, CLUSTER)
            writer.append(block)
        writer.finish()
    finally:
        writer.close()


def _write_raw(member: Member, file: int, report: Report) -> None:
    for offset, block in _blocks(member, report):
        written = 0
        while written < len(block):
            written += os.pwrite(file, block[written:], offset + written)
    os.ftruncate(file, member.length)
    os.fsync(file)


def main(argv: Sequence[str]) -> int:
    """Do one piece of work on an image; print errors to standard error."""
    log_path, root, word, directory, *rest = argv
    report, paths = ProgressFile(Path(log_path)).of_part, Paths(Path(root))
    try:
        if word == _STORE:
            source, form, digest = rest
            store(paths, Path(directory), source, form, digest, report=report)
        else:
            path, form, name = rest
            write(paths, Path(directory), path, form, name, report=report)
    except (GanetiError, OSError) as err:
        full = f"{os.strerror(errno.ENOSPC)}; free some space, or choose another node"
        say(full if is_full(err) else str(err), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
