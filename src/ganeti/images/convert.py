"""Conversion of images to raw disks: the content of a package becomes the dumps of an export.

The tool converts a private copy, whose header is checked again; it runs confined
(`confined.py`). A raw image is only copied.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from ganeti.base.errors import HostError, InputError
from ganeti.base.identifiers import host_name
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.images import confined
from ganeti.images.package import DiskImage, Member, Package, check_digest
from ganeti.model.params import BACKEND_DEFAULTS
from ganeti.protocols.export_description import (
    RAW as RAW_DATA,
)
from ganeti.protocols.export_description import (
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    format_description,
)
from ganeti.protocols.image_headers import RAW, ImageFacts, inspect_image
from ganeti.uidpool import ReleaseUid, RequestUnusedUid

QEMU_IMG = "/usr/bin/qemu-img"
UIDS = range(61184, 65520)
"""User ids that systemd reserves for services without a user of their own."""
MEMORY_LIMIT = 2 << 30
COUNT_LIMIT = 64
"""The limit of threads, and of open files."""
TIME_LIMIT_S = 12 * 3600
MIB = 1 << 20
CHUNK = 256 * 1024
_SAID_BYTES = 2000
_WORK, _SOURCE, _RESULT, _SAID = ".work", "source", "result", "messages"
_SHARE = re.compile(r"\(([0-9]{1,3}\.[0-9]{2})/100%\)", re.ASCII)
"""The progress in the output of qemu-img."""
LOOK_EVERY_S = 1.0

Report = Callable[[str, int, int], None]
"""Receives the progress: the object, the position in bytes, and the total."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+")


def describe(package: Package, name: str = "") -> ExportDescription:
    """The export that a package becomes; without a machine, the cluster chooses the missing values."""
    machine = package.machine
    beparams: dict[str, str] = {}
    if machine is not None and machine.memory is not None:
        beparams |= {"maxmem": str(machine.memory), "minmem": str(machine.memory)}
    if machine is not None and machine.processors is not None:
        beparams |= {"vcpus": str(machine.processors)}
    disks = [
        ExportedDisk(size=-(-size // MIB), dump=dump_name(number) if image else "")
        for number, (image, size) in enumerate(zip(package.disks, package.sizes, strict=True))
    ]
    return ExportDescription(
        name=name or _plain_host_name(machine.name if machine else ""),
        data=RAW_DATA,
        disks=tuple(disks),
        nics=(ExportedNic(),) * (machine.nics if machine else 1),
        beparams=beparams,
    )


def description_text(export: ExportDescription) -> str:
    """Return `config.ini`; unknown memory is that of a new cluster, for readers that need a number."""
    numbers = {
        name: int(export.beparams.get(name, BACKEND_DEFAULTS[name]))
        for name in ("maxmem", "minmem", "vcpus")
    }
    return format_description(export, numbers)


def dump_name(number: int) -> str:
    """Return the file of a disk, by its number."""
    return f"disk{number}.raw"


def _plain_host_name(text: str) -> str:
    """Return a host name made of any text."""
    plain = _NOT_IN_NAMES.sub("-", text.lower())
    labels = [label.strip("-")[:63].strip("-") for label in plain.split(".")]
    try:
        return host_name(".".join(label for label in labels if label), "name")
    except InputError:
        return "imported"


def show_nothing(_part: str, _done: int, _total: int) -> None:
    """Ignore the progress."""


def convert_package(package: Package, directory: Path, report: Report = show_nothing) -> None:
    """Write the dump of each disk into a directory of this node; after an error some may exist."""
    for number, image in enumerate(package.disks):
        if image is not None:
            convert_image(image, directory / dump_name(number), report)


def convert_image(image: DiskImage, target: Path, report: Report = show_nothing) -> None:
    """Make `target`, which must not exist, the raw disk of an image; HostError or InputError on failure."""
    if image.facts.format == RAW:
        with _new_file(target) as file:
            _copy(image, file.fileno(), report)
            os.ftruncate(file.fileno(), image.facts.size)
            os.fsync(file.fileno())
        return
    with _work_directory(target.parent) as (work, uid):
        copy = work / _SOURCE
        with _new_file(copy) as file:
            _copy(image, file.fileno(), report)
            os.chown(file.fileno(), uid, uid)
        _check_again(copy, image.facts)
        _qemu_img(work, uid, image.facts, partial(report, f"converting {image.member.name}"))
        result = os.open(work / _RESULT, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(result)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_nlink != 1
                or status.st_size != image.facts.size
            ):
                raise HostError(
                    f"{image.member.name}: qemu-img did not make a disk of {image.facts.size} bytes"
                )
            if os.geteuid() == 0:
                os.fchown(result, 0, 0)
            os.fchmod(result, 0o600)
            os.fsync(result)
        finally:
            os.close(result)
        (work / _RESULT).rename(target)


def _new_file(path: Path) -> IO[bytes]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "w+b")


def _copy(image: DiskImage, target: int, report: Report) -> None:
    """Copy the bytes of an image; zeros become a hole. Compare the expected digest."""
    member = image.member
    digest = hashlib.new(image.digest[0], usedforsecurity=False) if image.digest else None
    for offset, data in pieces(member, with_holes=digest is not None):
        if digest is not None:
            digest.update(data)
        if data.strip(b"\0"):
            write_all(target, data, offset)
        report(f"copying {member.name}", offset + len(data), member.length)
    os.ftruncate(target, member.length)
    if digest is not None and image.digest is not None:
        check_digest(member.name, image.digest, digest)


def pieces(member: Member, *, with_holes: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes, in order; without holes by default. HostError if the file becomes shorter."""
    offset = 0
    while offset < member.length:
        if not with_holes:
            offset = _next_data(member, offset)
            if offset >= member.length:
                return
        data = member.read(offset, CHUNK)
        if not data:
            raise HostError(f"{member.name} became shorter while it was read")
        yield offset, data
        offset += len(data)


def _next_data(member: Member, offset: int) -> int:
    try:
        found = os.lseek(member.descriptor, member.offset + offset, os.SEEK_DATA) - member.offset
    except OSError as err:
        if err.errno == errno.ENXIO:
            return member.length
        raise
    return max(offset, found // CHUNK * CHUNK)


def write_all(target: int, data: bytes, offset: int) -> None:
    """Write all bytes at an offset; a full disk stores a part and reports it only at the next write."""
    view = memoryview(data)
    while view:
        written = os.pwrite(target, view, offset)
        view, offset = view[written:], offset + written


def _check_again(path: Path, facts: ImageFacts) -> None:
    """Require that the copy is what was inspected."""
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        if inspect_image(read, os.fstat(file.fileno()).st_size, facts.format) != facts:
            raise InputError("was changed while it was copied", "image")


@contextlib.contextmanager
def _work_directory(parent: Path) -> Iterator[tuple[Path, int]]:
    """Give a directory to a user of its own; callers other than root keep their user."""
    work = parent / _WORK
    shutil.rmtree(work, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        uid = os.getuid()
        if uid == 0:
            locked = RequestUnusedUid(UIDS)
            stack.callback(ReleaseUid, locked)
            uid = int(locked)
        work.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        os.chown(work, uid, uid if uid != os.getuid() else -1)
        yield work, uid


def _qemu_img(work: Path, uid: int, facts: ImageFacts, report: Callable[[int, int], None]) -> None:
    words = ["convert", "-p", "-f", facts.format, "-O", "raw", f"./{_SOURCE}", f"./{_RESULT}"]

    def look(said: str) -> None:
        if shares := _SHARE.findall(said):
            report(int(float(shares[-1]) / 100 * facts.size), facts.size)

    status, said = run_confined([QEMU_IMG, *words], work, uid, file_size=facts.size, look=look)
    if status:
        said = _SHARE.sub("", said).strip()
        raise HostError(f"qemu-img cannot convert the image ({status}): {said}")


def run_confined(
    argv: list[str],
    work: Path,
    uid: int,
    *,
    file_size: int,
    look: Callable[[str], None] = lambda _said: None,
) -> tuple[int, str]:
    """Run a confined program in `work`; return its exit status and the end of its output.

    `look` gets the end of the output so far, once a second.
    """
    if not Path(argv[0]).exists():
        raise HostError(f"the program {argv[0]} does not exist on this node; install qemu-utils")
    limits = [str(one) for one in (uid, MEMORY_LIMIT, file_size, TIME_LIMIT_S, COUNT_LIMIT, "")]
    said = work / _SAID
    with (
        _new_file(said) as output,
        subprocess.Popen(
            [sys.executable, "-P", "-m", confined.__name__, *limits, *argv],
            cwd=work,
            env={**CLEAN_ENVIRONMENT, **_python()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            close_fds=False,  # the lock of the task that this may be
        ) as process,
    ):
        end, status = time.monotonic() + TIME_LIMIT_S, None
        try:
            while (status := _ended(process)) is None:
                look(_end_of(said))
                if time.monotonic() > end:
                    raise HostError(f"{argv[0]} did not end within {TIME_LIMIT_S // 3600} hours")
        finally:
            if status is None:
                process.kill()
    return status, _end_of(said)


def _ended(process: "subprocess.Popen[bytes]") -> int | None:
    """Return the exit status, or None if the program still runs after a second."""
    try:
        return process.wait(LOOK_EVERY_S)
    except subprocess.TimeoutExpired:
        return None


def _end_of(said: Path) -> str:
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - _SAID_BYTES))
        text = file.read(_SAID_BYTES).decode(errors="replace")
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n").strip()


def _python() -> Mapping[str, str]:
    """Return the path by which this process found this package."""
    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
