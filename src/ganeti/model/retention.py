"""The decision which backups are kept. Pure; times are seconds since 1970, and periods are those of UTC."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

NEWEST, NEWEST_GOOD = "newest", "newest good"


@dataclass(frozen=True)
class Retention:
    """How many backups each rule keeps."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0


_PERIODS = {
    "hourly": "%Y-%m-%d %H",
    "daily": "%Y-%m-%d",
    "weekly": "%G-W%V",
    "monthly": "%Y-%m",
    "yearly": "%Y",
}


def kept(
    points: Sequence[tuple[str, float]], rules: Retention, good: Collection[str] = ()
) -> Mapping[str, list[str]]:
    """Return the backups to keep with the reasons; `points` has names and times in the order of their making.

    The newest backup is always kept, and the newest of those that are proved to be good. In each period that has backups the last one of them counts, whatever the clocks
    said when it was made.
    """
    newest_first = list(reversed(points))
    found: dict[str, list[str]] = {name: [] for name, _ in newest_first}
    for name, _ in newest_first[:1]:
        found[name].append(NEWEST)
    for name in [name for name, _ in newest_first if name in good][:1]:
        found[name].append(NEWEST_GOOD)
    for name, _ in newest_first[: rules.last]:
        found[name].append("last")
    for rule, form in _PERIODS.items():
        seen = set[str]()
        for name, at in newest_first:
            period = time.strftime(form, time.gmtime(at))
            if period not in seen and len(seen) < getattr(rules, rule):
                seen.add(period)
                found[name].append(f"{rule} {period}")
    return {name: why for name, why in found.items() if why}
