"""The report for a terminal."""

from collections.abc import Iterable, Iterator, Sequence

from ganeti.whatif.report import Report, Run
from ganeti.whatif.wording import compared, duration, durations, figure, origin, summary

MOST_LINES = 20
"""Lines of a list; the JSON and HTML forms have more."""
MOST_REASONS = 3
BAR = 30


def text_report(report: Report) -> str:
    """Return the whole report."""
    run = report.run
    title = report.scenario or "What if"
    lines = [title, "=" * len(title), origin(report), ""]
    lines += ["Scenario", *(f"  {one}" for one in report.steps or ["nothing happens"])]
    if report.distribution:
        worst = f"Worst seed ({run.seed})"
        lines += ["", *_distribution(report), "", worst]
    else:
        lines += ["", "Result"]
    lines += [f"  {one}" for one in summary(run)]
    for section in (_reasons, _still_down, _outages, _order, _compared, _jobs, _contention, _failed,
                    _timeline):  # fmt: skip
        found = list(section(run))
        lines += ["", *found] if found else []
    lines += ["", "Assumptions", *(f"  {one}" for one in (*report.notes, _durations(report)))]
    return "\n".join(lines) + "\n"


def _durations(report: Report) -> str:
    return f"durations: {', '.join(durations(report))}"


def _distribution(report: Report) -> Iterator[str]:
    yield f"Over {len(report.seeds)} seeds"
    rows = [["", "least", "p50", "p90", "most"]]
    for name, one in report.distribution.items():
        values = [figure(name, value)[1] for value in (one.min, one.p50, one.p90, one.max)]
        rows.append([figure(name, 0)[0], *values])
    yield from table(rows, right=(1, 2, 3, 4))


def _reasons(run: Run) -> Iterator[str]:
    total = sum(run.reasons.values())
    if not total:
        return
    yield "Downtime by reason"
    yield from table(
        (
            [
                reason,
                duration(seconds),
                f"{100 * seconds / total:.0f} %",
                "█" * round(BAR * seconds / total),
            ]
            for reason, seconds in run.reasons.items()
        ),
        right=(1, 2),
    )


def _outages(run: Run) -> Iterator[str]:
    if not run.outages:
        return
    yield "Outages, the longest first"
    longest = sorted(run.outages, key=lambda one: (-one.length, one.instance))
    rows = [["instance", "node", "down for", "from", "mostly"]]
    for one in longest[:MOST_LINES]:
        where = f"{one.node} → {one.new_node}" if one.is_over else f"{one.node} (still down)"
        longest_parts = sorted(one.by_reason().items(), key=lambda part: -part[1])[:MOST_REASONS]
        reasons = ", ".join(f"{reason} {duration(seconds)}" for reason, seconds in longest_parts)
        rows.append([one.instance, where, duration(one.length), duration(one.began), reasons])
    yield from table(rows, right=(2, 3))
    yield from _more(len(longest) + run.left_out.get("outages", 0))


def _still_down(run: Run) -> Iterator[str]:
    if run.still_down:
        yield "Still down"
    for one in run.still_down[:MOST_LINES]:
        yield f"  {one.instance}, down since {duration(one.since)}, was on {one.node}: {one.why}"
        reasons: dict[str, list[str]] = {}
        for node, why in one.nodes:
            reasons.setdefault(why or "would have room", []).append(node)
        for why, nodes in reasons.items():
            yield f"    {_named(nodes)}: {why}"
    yield from _more(len(run.still_down) + run.left_out.get("still_down", 0))


def _named(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _order(run: Run) -> Iterator[str]:
    if not run.order:
        return
    yield "Order of recovery"
    rows = [["", "at", "instance", "node", "down for"]]
    for index, one in enumerate(run.order[:MOST_LINES], 1):
        rows.append([f"{index}.", duration(one.at), one.instance, one.node, duration(one.down_s)])
    yield from table(rows, right=(0, 1, 4))
    yield from _more(len(run.order) + run.left_out.get("order", 0))


def _compared(run: Run) -> Iterator[str]:
    yield "Before and after"
    yield from table([["", "before", "after"], *(list(row) for row in compared(run))])
    for line in run.after.unprotected[:MOST_LINES]:
        yield f"  {line}"


def _jobs(run: Run) -> Iterator[str]:
    if not run.work:
        return
    yield "Jobs: half of them took at most p50, nine of ten at most p90"
    rows = [["", "count", "failed", "queue p50", "p90", "locks p50", "p90", "work p50", "p90"]]
    for one in run.work:
        spreads = [duration(value) for each in (one.queued, one.locks, one.work)
                   for value in (each.p50, each.p90)]  # fmt: skip
        rows.append([one.kind, str(one.count), str(one.failed), *spreads])
    yield from table(rows, right=range(1, 9))


def _contention(run: Run) -> Iterator[str]:
    if not run.contention:
        return
    yield "Longest waits for locks"
    rows = [["job", "waited", "for", "behind jobs"]]
    for one in run.contention[:MOST_LINES]:
        behind = ", ".join(map(str, one.behind)) or "-"
        rows.append([str(one.job), duration(one.waited), one.what, behind])
    yield from table(rows, right=(0, 1))


def _failed(run: Run) -> Iterator[str]:
    if not run.failed:
        return
    yield "Failed jobs"
    for one in run.failed[:MOST_LINES]:
        times = f" ({one.times} times)" if one.times > 1 else ""
        yield f"  {duration(one.at)}: job {one.job}, {one.what}{times}: {one.error}"
    yield from _more(len(run.failed) + run.left_out.get("failed", 0))


def _timeline(run: Run) -> Iterator[str]:
    if not run.timeline:
        return
    yield "Timeline"
    shown = run.timeline[: 2 * MOST_LINES]
    yield from table([[duration(one.at), one.text] for one in shown], right=(0,))
    yield from _more(len(run.timeline) + run.left_out.get("timeline", 0), 2 * MOST_LINES)


def _more(count: int, shown: int = MOST_LINES) -> Iterator[str]:
    if count > shown:
        yield f"  … and {count - shown} more; --html and --json have them"


def table(rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> Iterator[str]:
    """Yield the rows with aligned columns; those in `right` are aligned to the right."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    flush = set(right)
    for row in cells:
        padded = [
            cell.rjust(width) if index in flush else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(padded)}".rstrip()
