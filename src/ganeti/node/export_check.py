"""Answers the call that compares the dumps of an export with the digests in its description.

This module does the work as a program (`python -m ganeti.node.export_check DIRECTORY LOG`), which is a task of the node.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.images.ova import read_export
from ganeti.images.package import open_beside
from ganeti.model import wire
from ganeti.model.compression import COMPRESSIONS
from ganeti.node.carrier.packing import piped
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.export_directory import ExportDirectories
from ganeti.node.program_reports import reported
from ganeti.node.tasks import Tasks
from ganeti.protocols.export_description import SCRIPT, ExportDescription, ExportedDisk
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.exports import EXPORT_VERIFY, DumpCheck, ExportArgs

PIECE = 1 << 20
MIB = 1 << 20


def handlers(paths: Paths, tasks: Tasks, exports: ExportDirectories) -> Handlers:
    """Return the handler."""
    return {EXPORT_VERIFY.name: _Checks(paths, tasks, exports).verify}


@dataclass(frozen=True)
class _Checks:
    paths: Paths
    tasks: Tasks
    exports: ExportDirectories

    async def verify(self, args: ExportArgs, call: Call) -> list[DumpCheck]:
        """Read all dumps; the log of the program is outside the export, which stays as it is."""
        exports = self.exports.of(stored=args.stored)
        directory = exports.directory(args.export, unfinished=False)
        argv = [sys.executable, "-m", __name__, str(directory)]
        answer = await reported(self.paths, self.tasks, call, argv)
        found = wire.decode(answer, list[DumpCheck], what="the result of a check")
        if exports.seals and not any(one.problem for one in found):
            await asyncio.to_thread(exports.seal, args.export)
        return found


def check_export(directory: Path, report: ProgressFile) -> list[DumpCheck]:
    """Compare each dump of the export in a directory with its description; blocks."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Of the opened directory, which a newer export may replace meanwhile.
        export = read_export(Path(f"/proc/self/fd/{opened}"))
        return [
            DumpCheck(disk=number, file=disk.dump, problem=_problem(opened, export, disk, report))
            for number, disk in enumerate(export.disks)
        ]
    finally:
        os.close(opened)


def _problem(
    directory: int, export: ExportDescription, disk: ExportedDisk, report: ProgressFile
) -> str:
    """Return what is wrong with a dump; '' if it is what was exported."""
    if not disk.dump:
        return "the export has no dump of it"
    if not disk.sha256:
        return "the export has no digest of it, as upstream Ganeti's have none"
    try:
        descriptor = open_beside(directory, disk.dump)
        try:
            digest, size = _digest(descriptor, export.compression, disk.dump, report)
        finally:
            os.close(descriptor)
    except (GanetiError, OSError) as err:
        return str(err)
    if export.data != SCRIPT and size != disk.size * MIB:
        return f"it has {size} bytes instead of {disk.size * MIB}"
    return "" if digest == disk.sha256 else "its data is not what was exported (SHA-256)"


def _digest(descriptor: int, compression: str, part: str, report: ProgressFile) -> tuple[str, int]:
    """Return the digest and the length of the data in a dump."""
    digest, length = hashlib.sha256(), 0
    total = os.fstat(descriptor).st_size

    def raw() -> Iterator[bytes]:
        done = 0
        while piece := os.read(descriptor, PIECE):
            yield piece
            done += len(piece)
            report.of_part(part, done, total)

    def take(pieces: Iterator[bytes]) -> None:
        nonlocal length
        for piece in pieces:
            digest.update(piece)
            length += len(piece)

    tool = COMPRESSIONS.get(compression)
    if tool is None:
        take(raw())
    else:
        with piped(tool.unpack, raw()) as unpacked:
            take(iter(lambda: os.read(unpacked, PIECE), b""))
    return digest.hexdigest(), length


def main(argv: Sequence[str]) -> int:
    """Check an export; print the result as JSON, or an error."""
    directory, log_path = map(Path, argv)
    try:
        found = check_export(directory, ProgressFile(log_path))
    except (GanetiError, OSError) as err:
        say(str(err), file=sys.stderr)
        return 1
    say(wire.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
