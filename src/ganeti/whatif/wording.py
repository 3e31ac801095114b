"""Words for the figures of a report, for the terminal and the HTML file."""

from ganeti.base.sizes import format_mib
from ganeti.whatif.capacity import Measured
from ganeti.whatif.outages import Reason
from ganeti.whatif.report import Report, Run

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

EXPLAINED = {
    Reason.LEASE: "its node ended it, because no master renewed the lease",
    Reason.DETECTION: "the master does not know yet that the node is lost",
    Reason.FENCING: "the node is being kept from writing",
    Reason.TURN: "other instances are recovered first",
    Reason.RETRY: "an attempt failed, for example for lack of room",
    Reason.QUEUE: "its job waits in the queue",
    Reason.LOCKS: "its job waits for locks of other jobs",
    Reason.WORK: "its job checks, and opens its disks",
    Reason.START: "the guest's process is started",
    Reason.BOOT: "the guest's system boots",
    Reason.NODE: "it is not protected, and its node is down",
    Reason.WATCHER: "its node is up, and nothing has started it yet",
}


def duration(seconds: float) -> str:
    """Return `12.3 s`, `5m 02s`, `1h 05m` or `3d 04h`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def number(value: float) -> str:
    """Return a figure without needless digits."""
    return f"{value:.1f}".removesuffix(".0")


def durations(report: Report) -> list[str]:
    """Return the assumed durations, with what they vary between."""
    found = []
    for name, value in report.durations.items():
        varies = report.varying.get(name)
        range_words = f" ({varies[0]:g} to {varies[1]:g})" if varies else ""
        found.append(f"{name} {value:g}{range_words}")
    return found


def figure(name: str, value: float) -> tuple[str, str]:
    """Return the heading of a figure and its value."""
    if name.endswith(" s"):
        return name.removesuffix(" s"), duration(value)
    return name, number(value)


def summary(run: Run) -> list[str]:
    """Return the main results as sentences."""
    figures = run.figures
    count = int(figures["instances down"])
    if not count:
        lines = ["No instance was down."]
    else:
        were = "instance was" if count == 1 else "instances were"
        total, longest = figures["total downtime s"], figures["longest outage s"]
        lines = [
            f"{count} {were} down, {duration(total)} in total, at most {duration(longest)} at once."
        ]
    still = int(figures["still down"])
    if still:
        lines.append(f"{still} {'is' if still == 1 else 'are'} still down at the end.")
    elif count:
        lines.append("All of them run again at the end.")
    if masterless := figures["without a master s"]:
        lines.append(f"The cluster had no master for {duration(masterless)}.")
    if run.first_misfit is not None:
        misfit = run.first_misfit
        lines.append(
            f"The first thing that did not fit, after {duration(misfit.at)}: {misfit.what}: {misfit.why}"
        )
    else:
        lines.append("Everything that had to be placed found room.")
    failed = int(figures["failed jobs"])
    lines.append(f"{int(figures['jobs'])} jobs ran; {failed} of them failed.")
    return lines


def compared(run: Run) -> list[tuple[str, str, str]]:
    """Return the rows of the comparison: what, before, after."""
    return [
        (title, before, after)
        for (title, before), (_title, after) in zip(
            _rows(run.before), _rows(run.after), strict=True
        )
    ]


def _rows(found: Measured) -> list[tuple[str, str]]:
    fits = f"at least {found.fits}" if found.fits_more else str(found.fits)
    return [
        ("nodes in service", str(found.nodes)),
        ("instances", str(found.instances)),
        ("free memory", f"{format_mib(found.memory_free)} of {format_mib(found.memory)}"),
        ("free disk", f"{format_mib(found.disk_free)} of {format_mib(found.disk)}"),
        ("score (lower is better)", f"{found.score:.4f}"),
        ("nodes that fail N+1", str(found.failing)),
        ("nodes that cannot be lost", str(found.unrecoverable)),
        ("more instances of standard size", fits),
        ("limited by", found.limited_by or "-"),
    ]


def origin(report: Report) -> str:
    """Return the line that names version, source and seeds: all that repeats the report."""
    seeds = report.seeds
    shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return (
        f"ganeti {report.version}; cluster {report.cluster} ({report.source}); {shown};"
        f" {duration(report.run.ended)} simulated"
    )
