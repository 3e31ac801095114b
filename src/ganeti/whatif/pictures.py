"""Pictures of a report as inline SVG: no script, no font and no address of another host."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ganeti.whatif.outages import Outage, Reason
from ganeti.whatif.report import NodeSpan, Report, Run, Spread
from ganeti.whatif.wording import duration, figure

WIDTH = 960
LEFT, RIGHT = 190, 24
ROW = 18
MOST_ROWS = 40
_LINE, _TEXT_UP, _AXIS = 11, 5, 22
_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800,
            2592000)  # fmt: skip
_MOST_TICKS = 8
_NAME_CHARACTERS = 26

REASON_CLASS = {reason: f"r{number}" for number, reason in enumerate(Reason)}
_STATE_CLASS = {
    "failed": "bad",
    "cut off": "bad",
    "stuck": "bad",
    "suspect": "warn",
    "fencing": "warn",
    "fenced": "off",
    "offline": "off",
    "drained": "calm",
    "returning": "calm",
}


def _svg(height: int, title: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _bar(x: float, y: float, width: float, *, css: str, tip: str, height: float = _LINE) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}"'
        f' class="{css}"><title>{escape(tip)}</title></rect>'
    )


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"


class _Scale:
    """Seconds to horizontal positions."""

    def __init__(self, first: float, last: float) -> None:
        self.first = first
        self.last = max(last, first + 1)

    def x(self, seconds: float) -> float:
        inside = min(max(seconds, self.first), self.last)
        return LEFT + (WIDTH - LEFT - RIGHT) * (inside - self.first) / (self.last - self.first)

    def axis(self, height: float) -> Iterator[str]:
        """Yield vertical lines with times below them."""
        length = self.last - self.first
        step = next((one for one in _STEPS_S if length / one <= _MOST_TICKS), _STEPS_S[-1])
        at = -(-self.first // step) * step
        while at <= self.last:
            x = self.x(at)
            yield f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height:.1f}" class="grid"/>'
            yield _text(x, height + _LINE + 3, _tick(at), "middle", "dim")
            at += step


def _tick(seconds: float) -> str:
    """Return a round time without its empty parts."""
    return "0" if not seconds else duration(seconds).replace(".0 s", " s").replace(" 00m", "").replace(
        "m 00s", " min"
    ).replace(" 00h", "")  # fmt: skip


def outage_picture(outages: Sequence[Outage]) -> str:
    """Return a bar for each of the longest outages: its reasons from its beginning on."""
    longest = sorted(outages, key=lambda one: (-one.length, one.instance))[:MOST_ROWS]
    over = [one.length for one in longest if one.is_over]
    scale = _Scale(0, max(over, default=max((one.length for one in longest), default=1.0)))
    parts = []
    for row, one in enumerate(longest):
        y = row * ROW
        parts.append(_text(LEFT - 8, y + _LINE, _short(one.instance), "end"))
        for part in one.parts:
            began, ended = part.began - one.began, part.ended - one.began
            if began > scale.last:
                break
            tip = f"{one.instance}: {part.reason}, {duration(part.length)}"
            width = scale.x(ended) - scale.x(began)
            parts.append(_bar(scale.x(began), y + 1, width, css=REASON_CLASS[part.reason], tip=tip))
        if not one.is_over:
            parts.append(_text(WIDTH - RIGHT + 3, y + _LINE, "→", css="dim"))
    height = len(longest) * ROW
    return _svg(height + _AXIS, "outages by reason", [*scale.axis(height), *parts])


def time_picture(run: Run) -> str:
    """Return the states of nodes over time, and the number of instances that are down."""
    marks = [at for one in run.node_states for at in (one.began, one.ended)]
    marks += [at for one in run.outages for at in (one.began, one.ended)]
    first, last = min(marks, default=0.0), max(marks, default=run.ended)
    margin = (last - first) * 0.03
    scale = _Scale(max(0.0, first - margin), min(run.ended, last + margin))
    parts = list(_down_area(run.outages, scale))
    nodes = sorted({one.node for one in run.node_states})[:MOST_ROWS]
    top = 60
    for row, node in enumerate(nodes):
        y = top + row * ROW
        parts.append(_text(LEFT - 8, y + _LINE, _short(node), "end"))
        parts.extend(_states(node, run.node_states, scale, y))
    height = top + len(nodes) * ROW
    return _svg(height + _AXIS, "nodes and instances over time", [*scale.axis(height), *parts])


def _states(node: str, spans: Iterable[NodeSpan], scale: _Scale, y: float) -> Iterator[str]:
    for one in spans:
        if one.node == node:
            css = _STATE_CLASS.get(one.state, "calm")
            tip = f"{node}: {one.state} from {duration(one.began)} to {duration(one.ended)}"
            yield _bar(
                scale.x(one.began), y + 1, scale.x(one.ended) - scale.x(one.began), css=css, tip=tip
            )


def _down_area(outages: Iterable[Outage], scale: _Scale) -> Iterator[str]:
    """Yield the number of instances that are down as an area of 44 points height."""
    changes: dict[float, int] = {}
    for one in outages:
        changes[one.began] = changes.get(one.began, 0) + 1
        changes[one.ended] = changes.get(one.ended, 0) - (1 if one.is_over else 0)
    count, most, steps = 0, 1, [(scale.first, 0)]
    for at, change in sorted(changes.items()):
        count += change
        most = max(most, count)
        steps.append((at, count))
    steps.append((scale.last, count))
    base, high = 52.0, 44.0
    points = [f"{scale.x(scale.first):.1f},{base}"]
    before = 0
    for at, number in steps:
        points.append(f"{scale.x(at):.1f},{base - high * before / most:.1f}")
        points.append(f"{scale.x(at):.1f},{base - high * number / most:.1f}")
        before = number
    points.append(f"{scale.x(scale.last):.1f},{base}")
    yield f'<polygon points="{" ".join(points)}" class="area"/>'
    yield _text(LEFT - 8, base - high + 8, f"{most} down", "end", "dim")
    yield _text(LEFT - 8, base, "0", "end", "dim")


def room_picture(run: Run) -> str:
    """Return the used shares of memory and disk before and after."""
    rows = []
    for what in ("memory", "disk"):
        for when, found in (("before", run.before), ("after", run.after)):
            total, free = getattr(found, what), getattr(found, f"{what}_free")
            if total:
                rows.append((f"{what} {when}", 1 - free / total))
    width = WIDTH - LEFT - RIGHT - 60
    parts = []
    for row, (name, share) in enumerate(rows):
        y = row * (ROW + 2)
        tip = f"{name}: {100 * share:.1f} % used"
        parts.append(_text(LEFT - 8, y + _LINE, name, "end"))
        parts.append(_bar(LEFT, y + 1, width, css="empty", tip=tip))
        parts.append(_bar(LEFT, y + 1, width * share, css="used", tip=tip))
        parts.append(_text(LEFT + width + 8, y + _LINE, f"{100 * share:.1f} %", css="dim"))
    return _svg(len(rows) * (ROW + 2) + 4, "used memory and disk", parts)


def spread_picture(report: Report) -> str:
    """Return a line from the least to the greatest value of each figure, with a box from p50 to p90."""
    parts: list[str] = []
    rows = list(report.distribution.items())
    for row, (name, one) in enumerate(rows):
        parts.extend(_spread(name, one, row * 34))
    return _svg(len(rows) * 34 + 4, "distribution over the seeds", parts)


def _spread(name: str, one: Spread, y: float) -> Iterator[str]:
    most = one.max or 1.0
    width = WIDTH - LEFT - RIGHT - 110

    def x(value: float) -> float:
        return LEFT + width * value / most

    title, greatest = figure(name, one.max)
    texts = [figure(name, value)[1] for value in (one.min, one.p50, one.p90, one.max)]
    tip = f"{title}: least {texts[0]}, p50 {texts[1]}, p90 {texts[2]}, most {texts[3]}"
    yield _text(LEFT - 8, y + _LINE + 2, title, "end")
    yield _bar(x(one.min), y + 7, x(one.max) - x(one.min), css="grid-bar", tip=tip, height=2)
    yield _bar(x(one.p50), y + 2, x(one.p90) - x(one.p50), css="used", tip=tip, height=12)
    yield _text(x(one.max) + 8, y + _LINE + 2, greatest, css="dim")
    yield _text(x(one.p50), y + 26, f"p50 {texts[1]}", css="dim small")
