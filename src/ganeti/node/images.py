"""Answers calls about machine images: inspect one, convert it to an export, make an OVA of an export.

Images lie below the directories of `/etc/ganeti/image-paths`, or `/srv/ganeti/images`. This module
does the work as a program (`python -m ganeti.node.images WORD ...`), which is a task of the node.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.files import is_full
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.guest_os.scripts import read_tail
from ganeti.images.convert import Report, convert_package, describe, description_text
from ganeti.images.ova import pack, read_export
from ganeti.images.package import OpenFile, Package, opened_package
from ganeti.images.uploads import open_complete
from ganeti.model.image_source import IMAGE_DIRECTORY, upload_of
from ganeti.node.carrier.progress import ProgressFile, forget_progress, read_progress
from ganeti.node.export_directory import ExportDirectory
from ganeti.node.tasks import Tasks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.meters import follow
from ganeti.rpc.procedures.exports import ExportArgs, ExportContent
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.images import (
    EXPORT_PACK,
    IMAGE_CONVERT,
    IMAGE_INFO,
    ConvertArgs,
    ImageArgs,
)
from ganeti.storage.confinement import AllowedDirectories

WORK_LIMIT_S = 24 * 3600.0
_CONVERT, _PACK = "convert", "pack"
_LOG = ".messages"


def handlers(paths: Paths, tasks: Tasks, exports: ExportDirectory) -> Handlers:
    """Return the handlers of all calls about images."""
    images = _Images(paths, tasks, exports)
    return {
        IMAGE_INFO.name: images.info,
        IMAGE_CONVERT.name: images.convert,
        EXPORT_PACK.name: images.pack,
    }


@dataclass(frozen=True)
class _Images:
    paths: Paths
    tasks: Tasks
    exports: ExportDirectory

    async def info(self, args: ImageArgs, _call: Call) -> ExportContent:
        return await asyncio.to_thread(_described, self.paths, args.path, args.format)

    async def convert(self, args: ConvertArgs, call: Call) -> Nothing:
        directory = self.exports.directory(args.export, unfinished=True)
        digest = hashlib.sha256(args.config.encode()).hexdigest()
        await self._work(call, directory, _CONVERT, args.format, args.path, digest)
        return Nothing()

    async def pack(self, args: ExportArgs, call: Call) -> Nothing:
        await self._work(call, self.exports.directory(args.export, unfinished=False), _PACK)
        return Nothing()

    async def _work(self, call: Call, directory: Path, *words: str) -> None:
        log_path = directory / _LOG
        follow(lambda: read_progress(log_path))
        status = await self.tasks.run(
            call.key,
            [sys.executable, "-m", __name__, str(self.paths.root), str(directory), *words],
            env={name: value for name, value in os.environ.items() if name.startswith("PYTHON")},
            log_path=log_path,
            timeout_s=WORK_LIMIT_S,
        )
        said = await asyncio.to_thread(read_tail, log_path)
        await asyncio.to_thread(log_path.unlink, missing_ok=True)
        await asyncio.to_thread(forget_progress, log_path)
        if status:
            raise HostError(
                said
                or (
                    f"the work on {directory} ended with status {status}; check whether its disk "
                    "is full"
                )
            )


@contextlib.contextmanager
def opened_image(paths: Paths, path: str) -> Iterator[OpenFile]:
    """Open the directory of an image, which must lie below an allowed one; StorageError."""
    allowed = AllowedDirectories.read(
        paths, shared=False, source=paths.image_paths, default=IMAGE_DIRECTORY
    )
    with allowed.enter(path) as place:

        def opened(name: str) -> int:
            try:
                return replace(place, name=name).open_file(os.O_RDONLY)
            except OSError as err:
                raise HostError(
                    f"{Path(path).with_name(name)} cannot be read: {err.strerror}"
                ) from err

        yield opened


@contextlib.contextmanager
def opened_source(paths: Paths, source: str) -> Iterator[tuple[OpenFile, str]]:
    """Open the directory of an image, or an upload, in which no file has neighbours; yields the source's name, too."""
    ident = upload_of(source)
    if ident is None:
        with opened_image(paths, source) as beside:
            yield beside, Path(source).name
        return

    def opened(name: str) -> int:
        if name != ident:
            raise InputError(
                f"needs the file {name}, but an upload is one file; upload an OVA", "source"
            )
        return open_complete(paths.image_uploads, ident)

    yield opened, ident


def _described(paths: Paths, source: str, form: str) -> ExportContent:
    with (
        opened_source(paths, source) as (beside, name),
        opened_package(beside, name, form) as found,
    ):
        return _content(found)


def _content(package: Package) -> ExportContent:
    export = describe(package)
    files = {
        disk.dump: size for disk, size in zip(export.disks, package.sizes, strict=True) if disk.dump
    }
    return ExportContent(config=description_text(export), files=files)


def main(argv: Sequence[str]) -> int:
    """Do one piece of work in a directory of exports; print errors to standard error."""
    root, directory, word, *rest = argv
    report = ProgressFile(Path(directory) / _LOG).of_part
    try:
        if word == _CONVERT:
            _convert(Paths(Path(root)), Path(directory), *rest, report=report)
        else:
            export = read_export(Path(directory))
            target = Path(directory) / f"{export.name}.ova"
            pack(Path(directory), export, target, report=report)
    except (GanetiError, OSError) as err:
        full = (
            f"{os.strerror(errno.ENOSPC)} for {directory}; free some space, or choose another node"
        )
        say(full if is_full(err) else str(err), file=sys.stderr)
        return 1
    return 0


def _convert(
    paths: Paths, directory: Path, form: str, path: str, digest: str, *, report: Report
) -> None:
    with (
        opened_image(paths, path) as beside,
        opened_package(beside, Path(path).name, form) as found,
    ):
        if hashlib.sha256(_content(found).config.encode()).hexdigest() != digest:
            raise InputError("changed after it was checked; try again", "image")
        convert_package(found, directory, report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
