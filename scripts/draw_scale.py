"""Draw how the costs of the master grow with the cluster: docs/design/scale.svg.

The argument is a file with the output of `benchmarks/bench_scale.py --sizes`: one JSON object for each size.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PICTURE = TOP / "docs" / "design" / "scale.svg"
CURVES = {
    "list_instances_s": "list of instances, s",
    "change_and_rest_ms": "change and what follows, ms",
    "job_ms": "reboot of an instance, ms",
    "allocate_ms": "allocation, ms",
    "verify_s": "verify, s",
    "watcher_s": "round of the watcher, s",
    "evacuate_s": "evacuation of a node, s",
    "ready_s": "start of the master, s",
    "failover_s": "failover of the master, s",
    "heartbeats_cpu_percent": "heartbeats, % of a processor",
    "master_mib": "memory of the master, MiB",
}
COLUMNS, WIDTH, HEIGHT, LEFT, ABOVE, GAP = 3, 190, 120, 44, 52, 66

Row = dict[str, float]


def curve(rows: Sequence[Row], key: str, title: str, x: int, y: int) -> list[str]:
    """Return one diagram: nodes on a logarithmic axis, the figure on a logarithmic axis."""
    values = [max(row[key], 0.001) for row in rows]
    nodes = [row["nodes"] for row in rows]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values) * 1.001))
    right = math.log10(nodes[-1] / nodes[0]) or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        across = WIDTH * math.log10(at / nodes[0]) / right
        return x + across, y + HEIGHT * (1 - (math.log10(value) - low) / (high - low))

    points = [place(at, value) for at, value in zip(nodes, values, strict=True)]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    out = [
        f'<text x="{x}" y="{y - 10}" font-weight="bold">{title}</text>',
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
        f'<polyline fill="none" stroke="#4c78a8" stroke-width="2" points="{line}"/>',
    ]
    for power in range(low, high + 1):
        _, py = place(nodes[0], 10.0**power)
        out.append(f'<text x="{x - 4}" y="{py + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for (px, py), at, row in zip(points, nodes, rows, strict=True):
        out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="#4c78a8"/>')
        out.append(f'<text x="{px:.1f}" y="{y + HEIGHT + 14}" text-anchor="middle">{at:g}</text>')
        if row is rows[-1]:
            text = f'<text x="{px - 6:.1f}" y="{py - 7:.1f}" text-anchor="end">{row[key]:g}</text>'
            out.append(text)
    return out


def picture(rows: Sequence[Row]) -> str:
    """Return the drawing as SVG."""
    lines = -(-len(CURVES) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP), ABOVE + lines * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        "<title>Costs of the master by number of nodes, with 20 instances on each</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13">Nodes across, with 20 instances on each; both axes are logarithmic</text>',
    ]
    for number, (key, title) in enumerate(CURVES.items()):
        x = LEFT + number % COLUMNS * (WIDTH + GAP)
        out += curve(rows, key, title, x, ABOVE + number // COLUMNS * (HEIGHT + GAP))
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines() if line]
    PICTURE.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
