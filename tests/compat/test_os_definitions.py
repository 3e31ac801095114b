"""OS definitions that nobody here wrote: Debian's `noop` and `debootstrap`, unchanged."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from ganeti.guest_os.definitions import load
from tests.support.debian_packages import unpacked
from tests.support.patience import ran
from tests.support.tiny_guest import CHECKOUT, build_tiny_guest

PACKAGES = ("ganeti-os-noop", "ganeti-instance-debootstrap")
TOUR = Path(__file__).with_name("debian_os_tour.py")


def test_they_are_taken_as_they_are(tmp_path: Path) -> None:
    root = unpacked(*PACKAGES)
    for name in ("noop", "debootstrap"):
        shutil.copytree(root / "usr/share/ganeti/os" / name, tmp_path / name, symlinks=True)
    lists = tmp_path / "debootstrap/variants.list"
    lists.unlink()  # a link to the package's configuration, which is not in its place here
    shutil.copy(root / "etc/ganeti/instance-debootstrap/variants.list", lists)
    noop, debootstrap = (load([tmp_path], name) for name in ("noop", "debootstrap"))
    assert (noop.problem, debootstrap.problem) == ("", "")
    assert debootstrap.variants == ["default"]
    assert [name for name, _ in debootstrap.parameters] == ["filesystem"]
    assert set(debootstrap.scripts) >= {"create", "export", "import", "rename", "verify"}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.requirement("S125", "S131", "S132", "S136")
def test_an_instance_is_made_exported_imported_and_renamed_and_boots_each_time(
    disk_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    root = unpacked(*PACKAGES, "dump", "liblzo2-2", "busybox-static")
    guest = build_tiny_guest()
    done = ran(
        ["unshare", "-m", "--propagation", "slave", sys.executable, TOUR, root, guest, disk_path],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, limit_s=1100,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout[-1500:] + done.stderr[-3000:]
