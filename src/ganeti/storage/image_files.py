"""Images in the format qcow2 in files of disks: a new one, its size, its growth.

An image grows with the data of its guest: nothing is allocated in advance but its first tables. Its clusters have 64
KiB, as those of QEMU's own default. Images are never probed and never followed: one that names another file is refused
before QEMU opens it.
"""

import os

from ganeti.base.errors import InputError, StorageError
from ganeti.base.process import CommandFailed, Run
from ganeti.model.disk_templates import QCOW2
from ganeti.protocols.image_headers import inspect_image
from ganeti.protocols.qcow2 import CLUSTER, closing

QEMU_IMG = "/usr/bin/qemu-img"
GROW_S = 600.0
_MAGIC_LENGTH = 4


def raw_copy(path: str) -> str:
    """Return the path of the raw copy of an image for a script, which exists only while the script runs."""
    return f"{path}.script_copy"  # no name of a snapshot has an underscore


def new_image(path: str) -> str:
    """Return the path of the image that replaces one after a script."""
    return f"{path}.script_new"


def empty_image(size: int) -> tuple[bytes, bytes]:
    """Return the header of an image whose disk has `size` bytes and reads as zeros, and the tables that follow it."""
    parts, first = closing(CLUSTER, size, {})
    return first, b"".join(parts)


def write_empty_image(descriptor: int, size: int) -> None:
    """Make a file an image that reads as zeros; its header is written last, so a file with a header is complete.

    A file that was such an image before has a header at any time, so a crash leaves one that can be written again.
    """
    first, tables = empty_image(size)
    _write(descriptor, tables, CLUSTER)
    os.fsync(descriptor)
    _write(descriptor, first, 0)
    os.ftruncate(descriptor, len(first) + len(tables))


def is_new_image(descriptor: int, size: int) -> bool:
    """Return whether a file is what a creation of such an image left, complete or not, and has no data of a guest."""
    first, tables = empty_image(size)
    whole = first + tables
    if os.fstat(descriptor).st_size > len(whole):
        return False
    found = os.pread(descriptor, len(whole), 0)
    return all(
        found[at : at + CLUSTER] in (whole[at : at + CLUSTER], bytes(len(found[at : at + CLUSTER])))
        for at in range(0, len(found), CLUSTER)
    )


def has_header(descriptor: int) -> bool:
    """Return whether anything is at the position of the header."""
    return os.pread(descriptor, _MAGIC_LENGTH, 0) not in (b"", bytes(_MAGIC_LENGTH))


def image_size(descriptor: int) -> int:
    """Return the size of the disk in an image, in bytes; StorageError if QEMU must not open the file."""

    def read(position: int, length: int) -> bytes:
        return os.pread(descriptor, length, position)

    try:
        return inspect_image(read, os.fstat(descriptor).st_size, QCOW2).size
    except InputError as err:
        reason = err.message.removeprefix("image: ")
        raise StorageError(
            f"the file is not an image that Ganeti made ({QCOW2}), and is not opened: {reason}"
        ) from err


async def grow_image(run: Run, descriptor: int, size: int) -> None:
    """Make the disk in an image larger. QEMU's lock refuses this while a guest uses the image.

    CommandFailed if qemu-img fails.
    """
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    await run([QEMU_IMG, "resize", "-q", "-f", QCOW2, path, str(size)], timeout_s=GROW_S)


def why_not_grown(err: CommandFailed) -> str:
    """Return why qemu-img did not grow an image."""
    if b"lock" in err.completed.stderr:
        return (
            "a program uses the image; stop the guest, or grow the disk on the node where it runs"
        )
    return str(err)


def _write(descriptor: int, data: bytes, position: int) -> None:
    while data:
        done = os.pwrite(descriptor, data, position)
        data, position = data[done:], position + done
