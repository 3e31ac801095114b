"""An export packed as an OVA, for other hypervisors: description, disks as VMDK, manifest.

The archive is written once, sequentially; only the description, which contains the lengths of the disks, is written
later into the space that was reserved for it.
"""

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ganeti.base.errors import HostError, InputError
from ganeti.images.convert import CHUNK, Report, pieces, show_nothing
from ganeti.images.package import Member, open_beside
from ganeti.model.compression import NONE
from ganeti.model.params import BACKEND_DEFAULTS
from ganeti.protocols.export_description import (
    SCRIPT,
    ExportDescription,
    parse_description,
)
from ganeti.protocols.ovf import OvfDisk, OvfMachine, format_ovf
from ganeti.protocols.vmdk import GRAIN, stream_optimized

CONFIG = "config.ini"
_BLOCK = tarfile.BLOCKSIZE
_MOST_DIGITS = 10**19
_CONFIG_LIMIT = 1 << 20


def check_can_be_packed(export: ExportDescription) -> None:
    """Refuse dumps that are not images of disks."""
    if export.compression != NONE:
        raise InputError(
            f"the dumps are compressed by {export.compression}; export without --compress", "export"
        )
    if export.data == SCRIPT:
        raise InputError(
            "the export script of the OS wrote the dumps, so they are not images of disks", "export"
        )


def read_export(directory: Path) -> ExportDescription:
    """Return the description of the export in a directory."""
    try:
        with (directory / CONFIG).open("rb") as file:
            return parse_description(file.read(_CONFIG_LIMIT).decode())
    except (OSError, UnicodeDecodeError) as err:
        raise HostError(f"{directory / CONFIG} cannot be read: {err}") from err


def pack(
    directory: Path,
    export: ExportDescription,
    target: Path,
    name: str = "",
    *,
    report: Report = show_nothing,
) -> None:
    """Write the export in `directory` to `target`, completely or not at all."""
    check_can_be_packed(export)
    name = name or export.name
    new = target.with_name(f".{target.name}.new")
    new.unlink(missing_ok=True)
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with new.open("xb") as file:
            new.chmod(0o600)
            _write(file, opened, export, name, report)
            file.flush()
            os.fsync(file.fileno())
        new.rename(target)
    finally:
        new.unlink(missing_ok=True)
        os.close(opened)


def _write(
    file: IO[bytes], directory: int, export: ExportDescription, name: str, report: Report
) -> None:
    numbers = {
        one: int(export.beparams.get(one, BACKEND_DEFAULTS[one])) for one in ("maxmem", "vcpus")
    }
    with_data = [disk for disk in export.disks if disk.dump]
    disks = tuple(
        OvfDisk(f"{name}-disk{number}.vmdk", disk.size << 20)
        for number, disk in enumerate(with_data)
    )
    machine = OvfMachine(name, numbers["maxmem"], numbers["vcpus"], len(export.nics), disks)
    room = len(format_ovf(machine, [_MOST_DIGITS] * len(disks)).encode())
    file.write(_header(f"{name}.ovf", room) + bytes(_padded(room)))
    sizes, manifest = [], ""
    for disk, exported in zip(disks, with_data, strict=True):
        size, digest = _disk(file, directory, exported.dump, disk, report)
        sizes.append(size)
        manifest += f"SHA256({disk.file})= {digest}\n"
    # The space is as long as the longest numbers would need; white space may follow the description.
    text = format_ovf(machine, sizes).encode().ljust(room, b"\n")
    manifest += f"SHA256({name}.ovf)= {hashlib.sha256(text).hexdigest()}\n"
    file.write(
        _header(f"{name}.mf", len(manifest))
        + manifest.encode().ljust(_padded(len(manifest)), b"\0")
    )
    file.write(bytes(2 * _BLOCK))
    file.seek(_BLOCK)
    file.write(text)


def _disk(
    file: IO[bytes], directory: int, dump: str, disk: OvfDisk, report: Report
) -> tuple[int, str]:
    """Append one disk; return its length in the archive and its digest."""
    descriptor = open_beside(directory, dump)
    try:
        source = Member(dump, descriptor, 0, os.fstat(descriptor).st_size)
        if source.length > disk.capacity:
            raise InputError(f"{dump} is longer than its disk", "export")
        begin, digest = file.tell(), hashlib.sha256()
        file.write(bytes(_BLOCK))
        for part in stream_optimized(_grains(source, report), disk.capacity, disk.file):
            digest.update(part)
            file.write(part)
    finally:
        os.close(descriptor)
    end = file.tell()
    file.seek(begin)
    file.write(_header(disk.file, end - begin - _BLOCK))
    file.seek(end)
    return end - begin - _BLOCK, digest.hexdigest()


def _grains(source: Member, report: Report) -> Iterator[tuple[int, bytes]]:
    """Yield data that is not zero, by numbers of grains."""
    assert CHUNK % GRAIN == 0  # noqa: S101 - two constants
    for offset, data in pieces(source):
        for at in range(0, len(data), GRAIN):
            if (grain := data[at : at + GRAIN]).strip(b"\0"):
                yield (offset + at) // GRAIN, grain
        report(source.name, offset + len(data), source.length)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.GNU_FORMAT if size >= 8**11 else tarfile.USTAR_FORMAT)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
