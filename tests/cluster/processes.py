"""What a process holds, as the kernel says."""

import os
from pathlib import Path


def resident_mib(pid: int) -> float:
    """Memory in RAM."""
    return _status_kib(pid, "VmRSS") / 1024


def peak_mib(pid: int) -> float:
    """The most memory that it ever had in RAM."""
    return _status_kib(pid, "VmHWM") / 1024


def threads(pid: int) -> int:
    """All threads, the first included."""
    return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - counted, not opened


def descriptors(pid: int) -> int:
    """Open files, sockets and pipes."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - counted, not opened


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no {name}")
