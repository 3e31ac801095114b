"""The node's own figures, from the kernel.

Disks and networks are those of the hardware, so that a volume, a mirror or a bridge does not count twice. A host whose
networks have no hardware, for example a container, counts all but its bridges and those of its guests.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ganeti.base.kernel_counters import parse_disks, parse_interfaces, sums
from ganeti.model.figures import DISK_COUNTERS, Reading

_IDLE = (3, 4)
"""Positions of the idle times in the first line of /proc/stat: idle, and idle with a disk at work."""
_COUNTED = 8
"""Times of guests follow, and are part of the others."""
_KIB_PER_MIB = 1024


class HostFigures:
    """Reads the figures of one machine."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._sys = proc, sys
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._disks: dict[str, bool] = {}
        """Name of a disk -> whether it is hardware."""
        self._networks: dict[str, tuple[bool, bool]] = {}
        """Name of a network interface -> whether it is hardware, and whether it may count without hardware."""

    def read(self) -> Reading:
        """Return what the kernel reports now; what it does not report is missing."""
        counters = _known({"cpu": lambda: busy_s(self._text("stat"), self._ticks)})
        counters |= self._of_disks() | self._of_networks()
        return Reading(
            life=None,
            counters=counters,
            present=_known({"memory": lambda: used_mib(self._text("meminfo"))}),
        )

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text(errors="replace")
        except OSError:
            return ""

    def _of_disks(self) -> dict[str, float]:
        disks = parse_disks(self._text("diskstats"))
        for name in disks.keys() - self._disks.keys():
            self._disks[name] = (self._sys / "block" / name / "device").exists()
        return sums(DISK_COUNTERS, (one for name, one in disks.items() if self._disks[name]))

    def _of_networks(self) -> dict[str, float]:
        found = parse_interfaces(self._text("net/dev"))
        for name in found.keys() - self._networks.keys():
            directory = self._sys / "class/net" / name
            inner = ("tun_flags", "bridge", "bonding", "master")
            is_inner = name == "lo" or any((directory / one).exists() for one in inner)
            self._networks[name] = (directory / "device").exists(), not is_inner
        with_hardware = any(self._networks[name][0] for name in found)
        column = 0 if with_hardware else 1
        return sums(
            ("net_in", "net_in_packets", "net_out", "net_out_packets"),
            (one for name, one in found.items() if self._networks[name][column]),
        )


def _known(readers: Mapping[str, Callable[[], float | None]]) -> dict[str, float]:
    found = {name: read() for name, read in readers.items()}
    return {name: value for name, value in found.items() if value is not None}


def busy_s(text: str, ticks_per_second: int) -> float | None:
    """Return the busy seconds of all processors in a /proc/stat; None if it has none."""
    name, *fields = text.partition("\n")[0].split()[: _COUNTED + 1] or [""]
    if name != "cpu" or not all(map(str.isdecimal, fields)):
        return None
    ticks = [int(one) for one in fields]
    idle = sum(one for index, one in enumerate(ticks) if index in _IDLE)
    return (sum(ticks) - idle) / ticks_per_second


def used_mib(text: str) -> float | None:
    """Return the memory that is not available in a /proc/meminfo; None if it is not there."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        total, free = (int(fields[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError):
        return None
    return (total - free) / _KIB_PER_MIB
