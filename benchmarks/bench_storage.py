"""What disks cost beyond the programs that keep them: activating volumes, filling them with zeros.

Programs of LVM are stand-ins that answer at once, called in the same way by us and by hand. Zeros go to a
file, and `dd` writes as many to the same one.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from machine import spin_ms, sync_ms

from ganeti.base.paths import Paths
from ganeti.base.process import Completed, run
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.lvm import commands
from ganeti.storage.lvm.tools import Lvm
from ganeti.storage.lvm.volume import LogicalVolume
from ganeti.storage.wipe import wipe

MIB = 1024 * 1024
VOLUMES = 200
TURNS = 3
UUID = "00000000-0000-4000-8000-{:012x}"


class StandIns:
    """Programs in a directory, in place of those of the host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "lvs").write_text('#!/bin/sh\ncat "${0%/*}/report"\n')
        (directory / "lvchange").write_text("#!/bin/sh\n")
        for name in ("lvs", "lvchange"):
            (directory / name).chmod(0o755)

    def report(self, name: str, uuid: str) -> None:
        """Let the next `lvs` speak of this volume, which is not active."""
        row = {
            "vg_name": "xenvg", "vg_uuid": "a", "lv_name": name, "lv_uuid": "b", "lv_attr": "-wi-------",
            "lv_size": str(64 * MIB), "lv_tags": f"ganeti.disk.{uuid}", "lv_kernel_major": "-1",
            "lv_kernel_minor": "-1", "origin": "",
        }  # fmt: skip
        text = json.dumps({"report": [{"lv": [row]}]})
        (self._directory / "report").write_text(text)

    def words(self, argv: Sequence[str]) -> list[str]:
        """The same command with the stand-in."""
        return [str(self._directory / argv[0]), *argv[1:]]

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        words = self.words(argv)
        return await run(words, timeout_s=timeout_s, stdin=stdin, env=env, check=check)


def activation_overhead_ms(directory: Path, count: int) -> float:
    """Milliseconds of our own processor time for each volume beyond what calling its commands by hand takes."""
    stand_ins = StandIns(directory)
    ours = by_hand = 0.0
    for number in range(count):
        uuid, name = UUID.format(number), f"volume{number}"
        stand_ins.report(name, uuid)
        spec = DiskSpec(uuid=uuid, index=0, size=64, template="plain", logical_id=("xenvg", name))
        begun = time.process_time()
        asyncio.run(LogicalVolume(Paths(), spec, lvm=Lvm(run=stand_ins)).open(DiskRole.PRIMARY))
        ours += time.process_time() - begun
        volume = commands.VolumeName("xenvg", name)
        begun = time.process_time()
        for words in (commands.list_volumes("xenvg", [name]), commands.activate(volume)):
            subprocess.run(stand_ins.words(words), check=True, capture_output=True)
        by_hand += time.process_time() - begun
    return (ours - by_hand) / count * 1000


def wipe_ratio(directory: Path, mib: int) -> float:
    """Return how long dd takes, divided by how long we take; more than 1 is faster than dd.

    Both write the same zeros to the same file, the fastest of some in turns. A device may zero itself
    without moving a byte, which dd does not ask it to: that would say nothing about us.
    """
    path = directory / "device"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, mib * MIB)
    dd = ["dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={mib // 4}", "conv=notrunc,fsync"]
    by_dd, by_us = [], []
    for _ in range(TURNS):
        begun = time.perf_counter()
        subprocess.run(dd, check=True, capture_output=True)
        by_dd.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with path.open("r+b") as file:
            wipe(file.fileno(), 0, mib * MIB)
        by_us.append(time.perf_counter() - begun)
    return min(by_dd) / min(by_us)


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer volumes, a smaller device")
    args = parser.parse_args()
    count, mib = (40, 64) if args.quick else (VOLUMES, 512)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        figures = {
            "activate_plain_200_overhead_ms": round(activation_overhead_ms(directory, count), 2),
            "wipe_ratio": round(wipe_ratio(directory, mib), 2),
            "sync_ms": sync_ms(directory),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures), file=sys.stdout)


if __name__ == "__main__":
    main()
