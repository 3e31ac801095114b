"""The kernel of a physical server, for machines with hardware whose driver the kernel of the small guest lacks.

It is Debian's ordinary kernel, only unpacked, and cached beside the small guest.
"""

import fcntl
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ganeti.vcluster.machine_image import archive
from tests.support.tiny_guest import CHECKOUT, build_tiny_guest

META_PACKAGE = "linux-image-amd64"
DRIVERS = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")


def server_kernel(*drivers: str) -> tuple[Path, bytes]:
    """Return the kernel, and an archive for behind the small guest's ramdisk.

    Its list `/lib/modules/server` has what a machine with virtio disks needs, and `/lib/modules/devices` the `drivers`.
    """
    builder = _builder()
    cache = build_tiny_guest().parent / "server-kernel"
    cache.mkdir(exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".work-") as name:
            made = cache / _package(builder, Path(name))
            if not made.exists():
                _unpack(builder, made, Path(name))
    kernel = builder.Kernel(made)
    needed = kernel.load_order(DRIVERS)
    own = [path for path in kernel.load_order((*DRIVERS, *drivers)) if path not in needed]
    found = {path.stem.replace("-", "_") for path in own}
    assert found >= set(drivers), f"{made.name} lacks one of {drivers}"
    files = {
        f"lib/modules/{path.name}": builder.unsigned(path.read_bytes()) for path in (*needed, *own)
    }
    return kernel.image, archive(
        {**files, "lib/modules/server": _listed(needed), "lib/modules/devices": _listed(own)}
    )


def _listed(modules: Sequence[Path]) -> bytes:
    return "".join(f"{path.name}\n" for path in modules).encode()


def _builder() -> ModuleType:
    """`guest/build.py`, which is a program."""
    spec = importlib.util.spec_from_file_location("guest_build", CHECKOUT / "guest" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _package(builder: ModuleType, work: Path) -> str:
    words = ["apt-cache", "depends", "--no-recommends", "--no-suggests", META_PACKAGE]
    found = re.search(r"Depends: (linux-image-\d\S+)", builder.run(words, work))
    assert found is not None, f"{META_PACKAGE} is not known; run apt-get update"
    return found[1]


def _unpack(builder: ModuleType, made: Path, work: Path) -> None:
    """Keep the image and the modules of disks, file systems and watchdogs: a tenth of the package."""
    root: Path = builder.fetch(made.name, work)
    kept = work / "kept"
    shutil.copytree(root / "boot", kept / "boot")
    for modules in root.glob("lib/modules/*"):
        shutil.copytree(
            modules, kept / modules.relative_to(root), ignore=shutil.ignore_patterns("sound", "net")
        )
    kept.rename(made)
