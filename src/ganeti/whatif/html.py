"""The report as one HTML file with everything in it: styles, pictures and data; no script and no other address."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ganeti.whatif.outages import Reason
from ganeti.whatif.pictures import (
    MOST_ROWS,
    REASON_CLASS,
    outage_picture,
    room_picture,
    spread_picture,
    time_picture,
)
from ganeti.whatif.report import Report, Run
from ganeti.whatif.wording import (
    EXPLAINED,
    compared,
    duration,
    durations,
    figure,
    origin,
    summary,
)

_COLOURS = {
    Reason.LEASE: "#a0522d",
    Reason.DETECTION: "#e8a33d",
    Reason.FENCING: "#d1495b",
    Reason.TURN: "#8d6bb0",
    Reason.RETRY: "#5b3758",
    Reason.QUEUE: "#9aa5b1",
    Reason.LOCKS: "#3d6fa5",
    Reason.WORK: "#2a9d8f",
    Reason.START: "#7bb661",
    Reason.BOOT: "#b5d99c",
    Reason.NODE: "#6b7280",
    Reason.WATCHER: "#c9b458",
}
_STYLE = """
:root{--bg:#fff;--fg:#1d2330;--dim:#667085;--line:#d9dee7;--card:#f6f8fb;--used:#3d6fa5;--bad:#d1495b;
--warn:#e8a33d;--off:#6b7280;--calm:#7fb7d6}
@media(prefers-color-scheme:dark){:root{--bg:#14181f;--fg:#e6e9ef;--dim:#98a2b3;--line:#333b48;
--card:#1c222c}}
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1020px;
padding:24px}
h1{font-size:26px;margin:0}h2{font-size:18px;margin:32px 0 8px}p{margin:6px 0}
.dim{color:var(--dim);fill:var(--dim)}.small{font-size:10px}
.result{background:var(--card);border-left:4px solid var(--used);border-radius:4px;padding:10px 16px;
margin:16px 0}
.result.bad{border-color:var(--bad)}
table{border-collapse:collapse;font-size:14px;display:block;overflow-x:auto}
th,td{padding:3px 14px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{color:var(--dim);font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}svg text{fill:var(--fg)}svg text.dim{fill:var(--dim)}
.grid{stroke:var(--line)}.grid-bar{fill:var(--dim)}.area{fill:var(--bad);opacity:.55}.used{fill:var(--used)}
.empty{fill:var(--line)}.bad{fill:var(--bad)}.warn{fill:var(--warn)}.off{fill:var(--off)}.calm{fill:var(--calm)}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;margin:4px 0 10px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
details{margin:6px 0}summary{cursor:pointer}ul{margin:4px 0;padding-left:20px}
"""


def html_report(report: Report) -> str:
    """Return the whole file."""
    run = report.run
    title = escape(report.scenario or "What if")
    is_bad = bool(run.figures["still down"] or run.first_misfit)
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<style>{_STYLE}{_reason_style()}</style></head><body>",
        f'<h1>{title}</h1><p class="dim">{escape(origin(report))}</p>',
        f'<div class="result{" bad" if is_bad else ""}">',
        *(f"<p>{escape(line)}</p>" for line in _result(report)),
        "</div>",
        *_section("Scenario", _list(report.steps or ["nothing happens"])),
        *_distribution(report),
        *_over_time(run),
        *_outages(run),
        *_still_down(run),
        *_before_and_after(run),
        *_order(run),
        *_work(run),
        *_failed(run),
        *_timeline(run),
        *_section("Assumptions", _list([*report.notes, *durations(report)])),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _result(report: Report) -> list[str]:
    lines = summary(report.run)
    if report.distribution:
        lines[0] = f"The worst of {len(report.seeds)} seeds ({report.run.seed}): {lines[0]}"
    return lines


def _reason_style() -> str:
    return "".join(f".{REASON_CLASS[one]}{{fill:{colour}}}" for one, colour in _COLOURS.items())


def _section(title: str, content: Iterable[str]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2>"
    yield from content


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{escape(line)}</li>" for line in lines)
    yield "</ul>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index in right else ''}>{escape(value)}</{tag}>"
            for index, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def _left_out(run: Run, name: str) -> Iterator[str]:
    if count := run.left_out.get(name):
        yield f'<p class="dim">{count} more are left out.</p>'


def _distribution(report: Report) -> Iterator[str]:
    if not report.distribution:
        return
    yield from _section(f"Over {len(report.seeds)} seeds", [spread_picture(report)])
    rows = [
        [
            figure(name, 0)[0],
            *(figure(name, value)[1] for value in (one.min, one.p50, one.p90, one.max)),
        ]
        for name, one in report.distribution.items()
    ]
    yield _table(["", "least", "p50", "p90", "most"], rows, range(1, 5))


def _over_time(run: Run) -> Iterator[str]:
    if run.node_states or run.outages:
        yield from _section("Over time", [])
        yield '<div class="legend">'
        for css, text in (("bad", "failed, cut off, or not fenced; above: instances that are down"),
                          ("warn", "suspected or being fenced"), ("off", "fenced or offline"),
                          ("calm", "drained or returning")):  # fmt: skip
            yield f'<span><i style="background:var(--{css})"></i>{text}</span>'
        yield "</div>"
        yield time_picture(run)


def _outages(run: Run) -> Iterator[str]:
    if not run.outages:
        return
    yield from _section("Downtime by reason", [])
    total = sum(run.reasons.values()) or 1.0
    yield '<div class="legend">'
    for reason in Reason:
        if seconds := run.reasons.get(reason.value):
            share = f"{duration(seconds)}, {100 * seconds / total:.0f} %"
            yield (
                f'<span title="{escape(EXPLAINED[reason])}"><i style="background:{_COLOURS[reason]}">'
                f"</i>{escape(reason.value)} ({share})</span>"
            )
    yield "</div>"
    yield outage_picture(run.outages)
    if len(run.outages) > MOST_ROWS:
        yield f'<p class="dim">The {MOST_ROWS} longest of {len(run.outages)} outages.</p>'
    rows = [
        [
            one.instance,
            one.node,
            one.new_node or "still down",
            duration(one.began),
            duration(one.length),
            ", ".join(f"{reason} {duration(length)}" for reason, length in one.by_reason().items()),
        ]
        for one in run.outages
    ]
    yield f"<details><summary>All {len(rows)} outages</summary>"
    yield _table(["instance", "from", "to", "at", "down for", "reasons"], rows, (3, 4))
    yield from _left_out(run, "outages")
    yield "</details>"


def _still_down(run: Run) -> Iterator[str]:
    if not run.still_down:
        return
    yield from _section("Still down at the end", [])
    for one in run.still_down:
        yield f"<details open><summary><b>{escape(one.instance)}</b>, on {escape(one.node)}"
        yield f" until {duration(one.since)}: {escape(one.why)}</summary>"
        yield _table(
            ["node", "reason"], [[node, why or "would have room"] for node, why in one.nodes]
        )
        yield "</details>"
    yield from _left_out(run, "still_down")


def _before_and_after(run: Run) -> Iterator[str]:
    yield from _section("Before and after", [room_picture(run)])
    yield _table(["", "before", "after"], compared(run), (1, 2))
    if run.after.unprotected:
        yield from _list(run.after.unprotected)


def _order(run: Run) -> Iterator[str]:
    if run.order:
        yield from _section("Order of recovery", [])
        rows = [
            [str(index), duration(one.at), one.instance, one.node, duration(one.down_s)]
            for index, one in enumerate(run.order, 1)
        ]
        yield f"<details><summary>{len(rows)} instances</summary>"
        yield _table(["", "at", "instance", "node", "down for"], rows, (0, 1, 4))
        yield from _left_out(run, "order")
        yield "</details>"


def _work(run: Run) -> Iterator[str]:
    if not run.work:
        return
    yield from _section("Jobs and locks", [])
    head = ["", "count", "failed", "queue p50", "p90", "locks p50", "p90", "work p50", "p90"]
    rows = [
        [one.kind, str(one.count), str(one.failed), *(
            duration(value) for each in (one.queued, one.locks, one.work)
            for value in (each.p50, each.p90)
        )]
        for one in run.work
    ]  # fmt: skip
    yield _table(head, rows, range(1, 9))
    if run.contention:
        yield "<p>Longest waits for locks:</p>"
        waits = [
            [str(one.job), duration(one.waited), one.what, ", ".join(map(str, one.behind)) or "-"]
            for one in run.contention
        ]
        yield _table(["job", "waited", "for", "behind jobs"], waits, (0, 1))


def _failed(run: Run) -> Iterator[str]:
    if run.failed:
        yield from _section("Failed jobs", [])
        rows = [
            [duration(one.at), str(one.job), one.what, str(one.times), one.error]
            for one in run.failed
        ]
        yield _table(["first at", "job", "what", "times", "error"], rows, (0, 1, 3))
        yield from _left_out(run, "failed")


def _timeline(run: Run) -> Iterator[str]:
    if run.timeline:
        yield from _section("Timeline", [])
        yield f"<details><summary>{len(run.timeline)} entries</summary>"
        rows = [[duration(one.at), one.kind, one.text] for one in run.timeline]
        yield _table(["at", "", "what"], rows, (0,))
        yield from _left_out(run, "timeline")
        yield "</details>"
