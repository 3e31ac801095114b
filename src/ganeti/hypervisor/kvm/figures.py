"""The figures of running guests, from the kernel alone: QEMU's monitor is not asked.

Processor time and memory are those of the QEMU process, networks those of the taps. The disks are the block devices
that QEMU has open. A guest without a block device has files as disks: their bytes are what QEMU reads from and writes
to the node's file systems, and their requests are unknown.
"""

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.base.kernel_counters import Counters, parse_disk, parse_interfaces, sums
from ganeti.base.paths import Paths
from ganeti.base.process_table import (
    PROC,
    START_TICKS,
    STATE,
    SYSTEM_TICKS,
    THREADS,
    USER_TICKS,
    ProcessId,
)
from ganeti.hypervisor.abilities import MeasuresGuests
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record, all_guest_files
from ganeti.model.figures import DISK_COUNTERS, Reading

LOOK_AGAIN = 12
"""After so many readings the open disks of a guest are determined again."""
_TO_GUEST = ("net_out", "net_out_packets", "net_in", "net_in_packets")
"""The figures of a tap's counters: what the tap receives, the guest has sent."""
_RESIDENT = 1
"""Position in /proc/PID/statm."""
_MIB = 1024 * 1024


@dataclass
class _Known:
    """What is remembered of a guest between two readings."""

    version: tuple[int, int]
    record: Record
    devices: tuple[Path, ...] = ()
    """The counters of its block devices."""
    readings: int = 0


class Figures(MeasuresGuests):
    """Measures the guests of a node."""

    def __init__(self, paths: Paths, proc: Path = PROC, sys: Path = Path("/sys")) -> None:
        self._paths, self._proc, self._sys = paths, proc, sys
        self._known: dict[str, _Known] = {}
        self._ticks, self._page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

    def measure(self) -> dict[str, Reading]:
        found = {one.short_uuid: self._remembered(one) for one in all_guest_files(self._paths)}
        self._known = {name: one for name, one in found.items() if one is not None}
        guests = [
            one for one in self._known.values() if one.record.pid and not one.record.is_incoming
        ]
        taps = parse_interfaces(_text(self._proc / "net/dev")) if guests else {}
        readings = {one.record.instance.uuid: self._measured(one, taps) for one in guests}
        return {uuid: one for uuid, one in readings.items() if one is not None}

    def _remembered(self, files: GuestFiles) -> _Known | None:
        """Return a guest with its present record, which is read again only if it has changed."""
        try:
            state = files.record.stat()
            version = state.st_ino, state.st_mtime_ns
            known = self._known.get(files.short_uuid)
            if known is not None and known.version == version:
                return known
            record = files.read()
        except (OSError, HypervisorError):
            return None
        return None if record is None else _Known(version, record)

    def _measured(self, guest: _Known, taps: dict[str, Counters]) -> Reading | None:
        """Return what the kernel reports; None if the guest has ended."""
        record = guest.record
        own = self._proc / str(record.pid)
        fields = _text(own / "stat").rpartition(")")[2].split()
        if len(fields) <= START_TICKS or int(fields[START_TICKS]) != record.start_ticks:
            return None
        if fields[STATE] in ("Z", "X") and int(fields[THREADS]) <= 1:
            return None
        ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
        counters = {"cpu": ticks / self._ticks}
        counters |= sums(_TO_GUEST, [taps[tap] for tap in record.taps if tap in taps])
        counters |= self._of_disks(guest, own)
        pages = _text(own / "statm").split()
        present = {"memory": int(pages[_RESIDENT]) * self._page / _MIB} if pages else {}
        life = ProcessId(record.pid, record.start_ticks), guest.devices, record.taps
        return Reading(life, counters, present)

    def _of_disks(self, guest: _Known, own: Path) -> dict[str, float]:
        if guest.readings % LOOK_AGAIN == 0:
            guest.devices = tuple(self._open_devices(own))
        guest.readings += 1
        if guest.devices:
            rows = [parse_disk(_text(path).split()) for path in guest.devices]
            return sums(DISK_COUNTERS, [one for one in rows if one is not None])
        lines = (line.partition(": ") for line in _text(own / "io").splitlines())
        totals = {name: value for name, _, value in lines}
        names = {"disk_read": "read_bytes", "disk_write": "write_bytes"}
        return {name: float(totals[of]) for name, of in names.items() if of in totals}

    def _open_devices(self, own: Path) -> list[Path]:
        """Return the counters of the block devices that a process has open."""
        numbers = set()
        with contextlib.suppress(OSError):
            for entry in os.scandir(own / "fd"):
                with contextlib.suppress(OSError):
                    state = entry.stat()
                    if stat.S_ISBLK(state.st_mode):
                        numbers.add(state.st_rdev)
        return [
            self._sys / "dev/block" / f"{os.major(one)}:{os.minor(one)}" / "stat"
            for one in sorted(numbers)
        ]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
