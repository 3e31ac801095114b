"""Debian's own LVM, unpacked in a cache directory, on loop devices of a kernel that may lack device-mapper.

Volumes are never activated: LVM keeps its metadata, and a loop device over the bytes of a volume stands
in for what device-mapper would show.
"""

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.process import CLEAN_ENVIRONMENT, Completed, run
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.devices import VolumeDevices
from ganeti.storage.lvm.reports import Volume
from ganeti.storage.lvm.tools import Lvm
from ganeti.storage.wipe import device_size

PACKAGES = (
    "lvm2",
    "libdevmapper-event1.02.1",
    "libdevmapper1.02.1",
    "libaio1",
    "libedit2",
    "libbsd0",
    "libmd0",
)
DOWNLOAD_LIMIT_S = 120
MIB = 1024 * 1024
_RANGE = re.compile(r"(/dev/[^:]+):(\d+)-(\d+)")


def cache_directory() -> Path:
    """Where the packages are kept: `$GANETI_LVM_CACHE`, or a folder of the user's cache."""
    given = os.environ.get("GANETI_LVM_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ganeti-lvm"


def unpacked_lvm() -> Path:
    """The root of the unpacked packages; skips the test where they are not to be had."""
    directory = cache_directory()
    root = directory / "root"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (directory / "complete").exists():
                _run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *PACKAGES], directory)
                for file in directory.glob("*.deb"):
                    _run(["dpkg", "-x", str(file), str(root)], directory)
                (directory / "complete").touch()
    except (OSError, subprocess.SubprocessError) as err:
        pytest.skip(f"Debian's lvm2 is not to be had here: {err}")
    return root


def _run(words: Sequence[str], directory: Path | None = None) -> str:
    done = subprocess.run(
        words, cwd=directory, check=True, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S
    )
    return done.stdout


@dataclass
class HostLvm(VolumeDevices):
    """LVM on loop devices below a directory; a `Run` and the devices of its volumes."""

    directory: Path
    root: Path
    loops: list[str] = field(default_factory=list)
    shown: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Where the bytes of a volume are -> the loop device that shows them."""

    @property
    def lvm(self) -> Lvm:
        # Other runs of tests have loop devices on this host, too.
        own = "".join(f'"a|^{loop}$|",' for loop in self.loops)
        config = (
            f'devices {{ filter=[{own}"r|.*|"] use_devicesfile=0'
            ' obtain_device_list_from_udev=0 external_device_info_source="none" scan=["/dev"] }'
            " activation { udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=0 }"
            " backup { backup=0 archive=0 } global { event_activation=0"
            f' locking_dir="{self.directory}" }}'
        )
        return Lvm(run=self, options=("--config", config, "--driverloaded", "n"))

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        words = [str(self.root / "sbin" / "lvm"), *argv]
        libraries = ":".join(
            str(self.root / part / "x86_64-linux-gnu") for part in ("lib", "usr/lib")
        )
        own = {**(env or CLEAN_ENVIRONMENT), "LD_LIBRARY_PATH": libraries}
        return await run(words, timeout_s=timeout_s, stdin=stdin, env=own, check=check)

    def device(self, mib: int, content: bytes) -> str:
        """A loop device whose every MiB begins with `content`."""
        path = self.directory / f"device{len(self.loops)}"
        with path.open("wb") as file:
            for at in range(mib):
                file.seek(at * MIB)
                file.write(content)
            file.truncate(mib * MIB)
        self.loops.append(_run(["losetup", "-f", "--show", str(path)]).strip())
        return self.loops[-1]

    async def place(self, name: VolumeName) -> tuple[str, int, int]:
        """Device, first byte and bytes of a volume of one piece."""
        columns = "seg_pe_ranges,lv_size,vg_extent_size"
        said = await self.lvm.act(
            [
                "lvs",
                "--reportformat",
                "json",
                "--units",
                "b",
                "--nosuffix",
                "-o",
                columns,
                "--",
                str(name),
            ]
        )
        rows = json.loads(said.stdout)["report"][0]["lv"]
        assert len(rows) == 1, "the volume lies in several pieces"
        found = _RANGE.search(rows[0]["seg_pe_ranges"])
        assert found
        started = await self.lvm.act(
            ["pvs", "--noheadings", "--units", "b", "--nosuffix", "-o", "pe_start", "--", found[1]]
        )
        offset = int(float(started.stdout)) + int(found[2]) * int(rows[0]["vg_extent_size"])
        return found[1], offset, int(rows[0]["lv_size"])

    async def show(self, name: VolumeName) -> str:
        """The loop device over the bytes that a volume has now."""
        where = await self.place(name)
        if where not in self.shown:
            device, offset, size = where
            words = ["losetup", "-f", "--show", "-o", str(offset), "--sizelimit", str(size), device]
            self.shown[where] = _run(words).strip()
        link = Path(self.path(name))
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(self.shown[where])
        return self.shown[where]

    def path(self, name: VolumeName) -> str:
        return str(self.directory / name.group / name.name)

    def check(self, volume: Volume, descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if path not in self.shown.values():
            raise StorageError(f"{path} is not the device of {volume.name}")

    def size(self, descriptor: int) -> int:
        return device_size(descriptor)

    def lose(self, device: str) -> None:
        """Let a physical volume be gone."""
        _run(["losetup", "-d", device])
        self.loops.remove(device)

    def close(self) -> None:
        """Give all loop devices back."""
        for loop in [*self.shown.values(), *self.loops]:
            subprocess.run(["losetup", "-d", loop], check=False, capture_output=True)
