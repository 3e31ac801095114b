"""Whether a device is the one of a volume."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.devices import DeviceMapper, opened
from ganeti.storage.lvm.reports import Volume
from tests.support.model_lvm import ModelDevices, ModelLvm

NAME = VolumeName("xenvg", "d1")
VOLUME = Volume("xenvg", "d1", 4096, "-wi-a-----", uuid="bb-b", group_uuid="aa-a")


def mapped(tmp_path: Path, uuid: str | None) -> tuple[DeviceMapper, int]:
    """A device (the one that every process has) that device-mapper calls so."""
    number = Path("/dev/null").stat().st_rdev
    where = tmp_path / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}" / "dm"
    where.mkdir(parents=True)
    if uuid is not None:
        (where / "uuid").write_text(f"{uuid}\n")
    return DeviceMapper(sys=tmp_path), os.open("/dev/null", os.O_RDWR)


@pytest.mark.requirement("F26")
@pytest.mark.parametrize(
    ("uuid", "why"),
    [("LVM-aaabbb", ""), ("LVM-aaaccc", "is another volume"), (None, "is not a logical volume")],
)
def test_a_device_is_known_by_its_uuid(tmp_path: Path, uuid: str | None, why: str) -> None:
    devices, descriptor = mapped(tmp_path, uuid)
    try:
        if why:
            with pytest.raises(StorageError, match=why):
                devices.check(VOLUME, descriptor)
        else:
            devices.check(VOLUME, descriptor)
    finally:
        os.close(descriptor)
    assert devices.path(NAME) == "/dev/xenvg/d1"


@pytest.mark.requirement("F26")
def test_a_device_of_another_size_is_not_written(tmp_path: Path) -> None:
    model = ModelLvm(tmp_path)
    model.add("xenvg", "d1", 8192)
    with (
        pytest.raises(StorageError, match=r"has 8192 bytes, but xenvg/d1 has 4096"),
        opened(ModelDevices(model), NAME, VOLUME, alone=False),
    ):
        pass
    with (
        pytest.raises(StorageError, match="cannot be opened: No such file"),
        opened(DeviceMapper(dev=tmp_path / "x"), NAME, VOLUME, alone=True),
    ):
        pass
