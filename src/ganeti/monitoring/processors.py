"""Processor load: `/proc/stat` and `xentop`, and averages over a window. Pure."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.base.errors import HostError

WINDOW_S = 600.0
MOST_SAMPLES = 150
XEN_LEAST_S = 100.0
"""The shortest time over which a domain's load is averaged."""
XENTOP = ("xentop", "-f", "-b", "-i", "1")
_DOMAIN_0 = "Domain-0"
_IDLE, _COUNTED = 3, 8
"""Number of the fields user, nice, system, idle, iowait, irq, softirq, steal.

Guest time follows, and is part of user.
"""


class Sample(NamedTuple):
    """Counters at a time (monotonic seconds), by their names."""

    at_s: float
    values: Mapping[str, float]


def parse_stat(text: str) -> dict[str, float]:
    """Return busy ticks since the start: `cpu` for all processors, `cpu0` and so on; HostError."""
    busy = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu"):
            continue
        try:
            ticks = [int(one) for one in fields[:_COUNTED]]
        except ValueError:
            raise HostError(f"/proc/stat has the line {line!r:.100}") from None
        busy[name] = float(sum(ticks) - ticks[_IDLE]) if len(ticks) > _IDLE else 0.0
    if "cpu" not in busy:
        raise HostError("/proc/stat has no processor load")
    return busy


def parse_xentop(text: str) -> dict[str, float]:
    """Return processor seconds by domain, without the node's own; HostError."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or lines[0][:1] != ["NAME"] or lines[0][2:3] != ["CPU(sec)"]:
        raise HostError("xentop prints no table that begins with NAME, STATE, CPU(sec)")
    found = {}
    for words in lines[1:]:
        if len(words) > 2 and words[0] != _DOMAIN_0:  # noqa: PLR2004 - name, state, seconds
            try:
                found[words[0]] = float(words[2])
            except ValueError:
                continue
    return found


class Window:
    """The samples of the last minutes, the oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Add a sample; drop those outside of the window."""
        self._samples.append(sample)
        while self._samples[0].at_s < sample.at_s - WINDOW_S:
            self._samples.popleft()

    def rates(self, least_s: float = 0.0) -> dict[str, float]:
        """Return the growth per second of each rising counter, over at least `least_s` of the window."""
        if len(self._samples) < 2:  # noqa: PLR2004 - one sample shows no growth
            return {}
        latest = self._samples[-1]
        found = {}
        for name, value in latest.values.items():
            first = _first_rising(self._samples, name)
            seconds = latest.at_s - first.at_s
            if seconds > 0 and seconds >= least_s:
                found[name] = (value - first.values[name]) / seconds
        return found


def _first_rising(samples: Sequence[Sample], name: str) -> Sample:
    """Return the oldest sample since which the counter only grew.

    It restarts with a domain or a processor.
    """
    first = samples[-1]
    for sample in reversed(samples):
        if sample.values.get(name, float("inf")) > first.values[name]:
            break
        first = sample
    return first


def load_data(rates: Mapping[str, float], ticks_per_second: int) -> dict[str, Any]:
    """Return the data of `cpu-avg-load`: busy processors, each and in all.

    HostError while too little is known.
    """
    if "cpu" not in rates:
        raise HostError("the time covered by data is not sufficient yet")
    each = [name for name in rates if name != "cpu"]
    return {
        "cpu_number": len(each),
        "cpus": [rates[name] / ticks_per_second for name in each],
        "cpu_total": rates["cpu"] / ticks_per_second,
    }
