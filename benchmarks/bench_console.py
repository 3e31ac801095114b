"""The web console in a browser: its size, and its delays with a large cluster.

The page is real, and so is the browser. The answers are those of a made-up cluster (`console/browser/big_cluster.mjs`),
so the figures are the page's own, without those of the master. `memory_mib` is measured after 180,000 events, as many
as an hour has at 50 a second, sent as fast as the page takes them.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from machine import spin_ms

TOP = Path(__file__).resolve().parents[1]
PAGE = TOP / "src/ganeti/web/ui"
SCRIPT = TOP / "console/browser/bench.mjs"
WHOLE, SMALLEST = (1_000, 20_000, 120), (20, 400, 2)
"""Nodes, instances, and seconds with 50 changes a second."""


def missing() -> str | None:
    """Return what keeps this host from measuring, or None."""
    for program in ("node", "chromium"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not (PAGE / "index.html").exists() or not (TOP / "console/node_modules").exists():
        return "the console is not built: run make console"
    return None


def browser_figures(nodes: int, instances: int, seconds: int) -> dict[str, float]:
    """Return the figures of the page with a cluster of this size."""
    words = ["node", str(SCRIPT), str(PAGE), str(nodes), str(instances), str(seconds)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the figures as one JSON object; without a browser, only the machine's own speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster, for two seconds")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    if why := missing():
        print(f"nothing is measured in a browser: {why}", file=sys.stderr)
    else:
        figures = browser_figures(*(SMALLEST if args.quick else WHOLE))
    print(json.dumps({**figures, "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
