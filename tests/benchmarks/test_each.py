"""Every benchmark still runs: each is run once, shortened, and prints its figures."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path.stem for path in (TOP / "benchmarks").glob("bench_*.py"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCRIPTS)
def test_benchmark_prints_its_figures(name: str) -> None:
    words = [sys.executable, f"benchmarks/{name}.py", "--quick"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    numbers = [figure for figure in figures.values() if isinstance(figure, int | float)]
    assert numbers
    assert all(math.isfinite(number) for number in numbers)
