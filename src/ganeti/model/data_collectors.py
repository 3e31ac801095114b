"""The data collectors of the monitoring daemon: their names, and the cluster's settings for each."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ganeti.base.errors import InputError

CPU_LOAD = "cpu-avg-load"
XEN_CPU_LOAD = "xen-cpu-avg-load"
DISKSTATS = "diskstats"
DRBD = "drbd"
LV = "lv"
KVM_STATUS = "inst-status-kvm"
KVM_MEMORY = "kvm-inst-rss"
NAMES = (CPU_LOAD, DISKSTATS, DRBD, KVM_STATUS, KVM_MEMORY, LV, XEN_CPU_LOAD)

MICROSECONDS = 1_000_000
"""Intervals are microseconds on the wire, as clients send them."""
DEFAULT_INTERVAL_US = 5 * MICROSECONDS
INTERVALS_US = (MICROSECONDS, 3600 * MICROSECONDS)


class Collecting(msgspec.Struct, frozen=True):
    """Whether a collector is active, and its shortest interval."""

    active: bool = True
    interval_us: int = DEFAULT_INTERVAL_US


def collecting(enabled: Mapping[str, bool], intervals: Mapping[str, int]) -> dict[str, Collecting]:
    """Return every collector, with the settings and defaults for the rest."""
    return {
        name: Collecting(enabled.get(name, True), intervals.get(name, DEFAULT_INTERVAL_US))
        for name in NAMES
    }


def enabled(given: Mapping[str, bool]) -> dict[str, bool]:
    """Return every collector, with whether it is active."""
    return {name: one.active for name, one in collecting(given, {}).items()}


def intervals_us(given: Mapping[str, int]) -> dict[str, int]:
    """Return every collector, with its shortest interval."""
    return {name: one.interval_us for name, one in collecting({}, given).items()}


def check_enabled(given: Mapping[str, Any], field: str) -> None:
    """Raise InputError unless the values are true or false; None restores the default."""
    _check_names(given, field)
    for name, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{name}: {value!r:.40} is not true or false", field)


def check_intervals(given: Mapping[str, Any], field: str) -> None:
    """Raise InputError unless the values are microseconds in range; None restores the default."""
    _check_names(given, field)
    least, most = INTERVALS_US
    for name, value in given.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and least <= value <= most):
            raise InputError(
                f"{name}: an interval must be {least // MICROSECONDS} to {most // MICROSECONDS} seconds",
                field,
            )


def _check_names(given: Mapping[str, Any], field: str) -> None:
    if unknown := [name for name in given if name not in NAMES]:
        raise InputError(
            f"{unknown[0]!r:.80} is not a data collector; known: {', '.join(NAMES)}", field
        )


def format_lines(wanted: Mapping[str, Collecting]) -> str:
    """Return the ssconf value `data_collectors`: name, active, microseconds, a line each."""
    return "\n".join(f"{name} {one.active} {one.interval_us}" for name, one in wanted.items())


def parse_lines(text: str) -> dict[str, Collecting]:
    """Parse the output of `format_lines`, with defaults for missing or invalid lines."""
    found = collecting({}, {})
    for line in text.splitlines():
        match line.split():
            case [name, "True" | "False" as active, interval] if (
                name in found and interval.isdecimal()
            ):
                found[name] = Collecting(active == "True", int(interval))
    return found
