"""The way to open the disks of a guest on this host."""

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.command_line import DiskBackend
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec, InstanceSpec


def resolve_disks(instance: InstanceSpec, paths: Sequence[str], cache: str) -> list[DiskBackend]:
    """Examine every disk; HypervisorError names the first one that cannot be opened."""
    if len(paths) != len(instance.disks):
        raise HypervisorError(
            f"{instance.name} has {len(instance.disks)} disks, but the paths of {len(paths)} were given"
        )
    return [_resolve(disk, path, cache) for disk, path in zip(instance.disks, paths, strict=True)]


def cache_mode(disk: DiskSpec, cache: str) -> str:
    """Return the cache mode of a disk: never the host's cache if other nodes see the same data."""
    template = DISK_TEMPLATES.get(disk.template)
    if template is not None and template.shared:
        return "none"
    return "writeback" if cache == "default" else cache


def _resolve(disk: DiskSpec, path: str, cache: str) -> DiskBackend:
    mode = cache_mode(disk, cache)
    template = DISK_TEMPLATES.get(disk.template)
    if template is not None and template.remote is not None and not path.startswith("/"):
        return DiskBackend(path=path, is_block=False, direct=True, remote=template.remote(path))
    try:
        status = Path(path).stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            raise HypervisorError(f"disk {disk.index}: {path} is neither a file nor a block device")
        direct = mode == "none" and _takes_direct_access(path)
    except OSError as err:
        raise HypervisorError(
            f"disk {disk.index}: {path} cannot be opened: {err.strerror}"
        ) from err
    return DiskBackend(
        path=path,
        is_block=stat.S_ISBLK(status.st_mode),
        direct=direct,
        writethrough=mode == "writethrough",
    )


def without_host_cache(backend: DiskBackend) -> DiskBackend:
    """Return the way to open a disk past the host's cache, if its storage permits that.

    HypervisorError if the disk cannot be opened.
    """
    if backend.direct or backend.remote is not None:
        return backend
    try:
        return dataclasses.replace(backend, direct=_takes_direct_access(backend.path))
    except OSError as err:
        raise HypervisorError(f"{backend.path} cannot be opened: {err.strerror}") from err


def _takes_direct_access(path: str) -> bool:
    """Return whether direct I/O works; some file systems, for example in memory, refuse it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as err:
        if err.errno == errno.EINVAL:
            return False
        raise
    os.close(descriptor)
    return True


@contextlib.contextmanager
def opened(path: str, *, read_only: bool) -> Iterator[int]:
    """Open a disk's file, for the time of a block."""
    flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except OSError as err:
        raise HypervisorError(f"{path} cannot be opened: {err.strerror}") from err
    try:
        yield file
    finally:
        os.close(file)
