"""Every benchmark still runs: each is run once, as short as it can be, and prints its figures."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LONG = ("bench_backup", "bench_merge", "bench_real_nodes", "bench_state")
"""Which take more than half a minute, however short."""
SCRIPTS = [
    pytest.param(path.stem, marks=pytest.mark.soak if path.stem in LONG else ())
    for path in sorted((TOP / "benchmarks").glob("bench_*.py"))
]


@pytest.mark.rotated(8)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCRIPTS)
def test_benchmark_prints_its_figures(name: str) -> None:
    script = TOP / "benchmarks" / f"{name}.py"
    has_smoke = any(word in script.read_text() for word in ('"--smoke"', "chosen_size("))
    shortest = "--smoke" if has_smoke else "--quick"
    words = [sys.executable, str(script), shortest]
    # A benchmark makes its own cluster, whatever a test before this one has set in this process.
    own = ("GANETI_", "FORCE_LUXI_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        words, cwd=TOP, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    numbers = [figure for figure in figures.values() if isinstance(figure, int | float)]
    assert numbers
    assert all(math.isfinite(number) for number in numbers)
