"""The KVM guests of this node, identified by the command lines of their processes.

`/proc` shows the command line to all users, so no access to the guests' own files is needed. A QEMU
process is a guest of this node if it has an instance's UUID and sockets in this node's directory
for guests.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ganeti.monitoring.report import Code, Status

_FILES_BEGIN = 8
"""Characters of its UUID with which the names of all files of a guest begin."""
_STATE, _START_TICKS = 0, 19
"""Fields in /proc/PID/stat, counted after the program's name."""
_RESIDENT = 1
"""Field in /proc/PID/statm: pages in memory."""
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


class Guest(NamedTuple):
    """One guest's process; `started` is seconds since the epoch."""

    name: str
    uuid: str
    state: str
    started: float
    resident_pages: int


def instance_of(words: Sequence[str], directory: Path) -> tuple[str, str] | None:
    """Return (name, UUID) of the instance whose QEMU this node started with this command line; else None."""
    uuid, name = _value(words, "-uuid"), _value(words, "-name")
    inside = f"{directory}/{uuid[:_FILES_BEGIN]}"
    if not uuid or not any(inside in word for word in words):
        return None
    parts = dict(part.partition("=")[::2] for part in name.split(","))
    return parts.get("guest", name), uuid


def _value(words: Sequence[str], flag: str) -> str:
    for before, word in pairwise(words):
        if before == flag:
            return word
    return ""


def guests(proc: Path, directory: Path) -> Iterator[Guest]:
    """Return the running guests; one that ends meanwhile is omitted."""
    boot = _boot_time(_read(proc / "stat"))
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    for entry in sorted(proc.iterdir()):
        if not entry.name.isdecimal():
            continue
        words = _read(entry / "cmdline").split("\0")
        found = instance_of(words, directory)
        fields = _read(entry / "stat").rpartition(")")[2].split()
        pages = _read(entry / "statm").split()
        if found is None or not fields or not pages or fields[_STATE] in ("Z", "X"):
            continue
        started = boot + int(fields[_START_TICKS]) / ticks_per_second
        yield Guest(*found, fields[_STATE], started, int(pages[_RESIDENT]))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _boot_time(stat: str) -> float:
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return float(value)
    return 0.0


def memory_data(running: Sequence[Guest]) -> dict[str, int]:
    """Return the data of `kvm-inst-rss`: pages in memory, by instance."""
    return {one.name: one.resident_pages for one in running}


def status_data(running: Sequence[Guest], now: float) -> dict[str, Any]:
    """Return the data of `inst-status-kvm`.

    A node sees the running guests; only the master knows the desired state and its reason, so the
    administrator's state is null.
    """
    instances: list[dict[str, Any]] = []
    for one in running:
        stands = one.state in ("T", "t")
        what = Status(Code.UNKNOWN, "its process is stopped") if stands else Status()
        instances.append(
            {
                "name": one.name,
                "uuid": one.uuid,
                "adminState": None,
                "actualState": "hung" if stands else "up",
                "uptime": uptime_text(max(0.0, now - one.started)),
                "mtime": one.started,
                "state_reason": [],
                "status": what.plain(),
            }
        )
    stopped = [one["name"] for one in instances if one["actualState"] != "up"]
    overall = Status(Code.UNKNOWN, f"stopped: {', '.join(stopped)}") if stopped else Status()
    return {"status": overall.plain(), "instances": instances}


def uptime_text(seconds: float) -> str:
    """Return a duration such as `1 day, 2:03:04`."""
    days, rest = divmod(int(seconds), _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    head = f"{days} day{'' if days == 1 else 's'}, " if days else ""
    return f"{head}{hours}:{minutes:02}:{left:02}"
