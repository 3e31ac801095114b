"""The device of a logical volume, and the check that it belongs to this very volume."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.base.errors import StorageError
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.reports import Volume
from ganeti.storage.wipe import device_size


class VolumeDevices(Protocol):
    """The directory of volumes on the host."""

    def path(self, name: VolumeName) -> str: ...

    def check(self, volume: Volume, descriptor: int) -> None:
        """Raise StorageError unless an open device belongs to this volume."""
        ...

    def size(self, descriptor: int) -> int:
        """Return the bytes of an open device."""
        ...


@dataclass(frozen=True)
class DeviceMapper(VolumeDevices):
    """The paths of device-mapper and udev."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")

    def path(self, name: VolumeName) -> str:
        return str(self.dev / name.group / name.name)

    def check(self, volume: Volume, descriptor: int) -> None:
        number = os.fstat(descriptor).st_rdev
        where = f"{os.major(number)}:{os.minor(number)}"
        try:
            found = (self.sys / "dev" / "block" / where / "dm" / "uuid").read_text("ascii").strip()
        except OSError as err:
            raise StorageError(
                f"device {where} is not a logical volume ({err.strerror}), so it is not"
                f" {volume.group}/{volume.name}"
            ) from err
        if found != volume.device_mapper_uuid:
            raise StorageError(
                f"device {where} is another volume ({found:.100}) than {volume.group}/{volume.name}; run"
                " 'vgmknodes' and check the links below /dev"
            )
        if volume.device is not None and volume.device != (os.major(number), os.minor(number)):
            raise StorageError(f"{volume.group}/{volume.name} has another device than {where}")

    def size(self, descriptor: int) -> int:
        return device_size(descriptor)


@contextmanager
def opened(
    devices: VolumeDevices, name: VolumeName, volume: Volume, *, alone: bool
) -> Iterator[int]:
    """Open the checked device of a volume for writing; blocks.

    `alone` refuses one that is mounted or below another device, because a new volume must be unused.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_EXCL if alone else 0)
    path = devices.path(name)
    try:
        descriptor = os.open(path, flags)
    except OSError as err:
        raise StorageError(f"{path} cannot be opened: {err.strerror}") from err
    try:
        devices.check(volume, descriptor)
        size = devices.size(descriptor)
        if size != volume.size:
            raise StorageError(f"{path} has {size} bytes, but {name} has {volume.size}")
        yield descriptor
    finally:
        os.close(descriptor)
