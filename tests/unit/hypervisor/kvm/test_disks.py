"""How disks are opened."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.disks import cache_mode, resolve_disks
from ganeti.model.instance_spec import DiskSpec, InstanceSpec


def disk(template: str) -> DiskSpec:
    return DiskSpec(uuid="d", index=0, size=1, template=template, logical_id=())


def instance(template: str) -> InstanceSpec:
    return InstanceSpec(
        name="web1", uuid="u", hypervisor="kvm", os="o", memory=1, vcpus=1, hvparams={},
        disks=(disk(template),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("template", "wanted", "got"),
    [
        ("file", "default", "writeback"),
        ("file", "none", "none"),
        ("file", "writethrough", "writethrough"),
        ("sharedfile", "writeback", "none"),
        ("unknown", "default", "writeback"),
    ],
)
def test_disks_that_other_nodes_see_never_use_the_hosts_cache(
    template: str, wanted: str, got: str
) -> None:
    assert cache_mode(disk(template), wanted) == got


def test_a_file_is_opened_past_the_cache_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(4096))
    [backend] = resolve_disks(instance("file"), [str(path)], "writethrough")
    assert (backend.is_block, backend.direct, backend.writethrough) == (False, False, True)


def test_a_file_system_that_refuses_direct_access_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(4096))
    real = os.open

    def refusing(name: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags, *more, **others)

    monkeypatch.setattr(os, "open", refusing)
    [backend] = resolve_disks(instance("sharedfile"), [str(path)], "default")
    assert backend.direct is False


def test_what_is_no_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HypervisorError, match="neither a file nor a block device"):
        resolve_disks(instance("file"), [str(tmp_path)], "default")
    with pytest.raises(HypervisorError, match="cannot be opened: No such file"):
        resolve_disks(instance("file"), [str(tmp_path / "none")], "default")
    with pytest.raises(HypervisorError, match="1 disks, but the paths of 0"):
        resolve_disks(instance("file"), [], "default")
