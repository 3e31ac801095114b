"""Print each row of requirements.md and guarantees.md: `S16 tested (3)` or `S16 open`."""

import json
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
ROWS_FILE = TOP / "tests" / "support" / "requirement_rows.txt"
CACHE_FILE = TOP / ".cache" / "requirements-passed.json"


def main() -> None:
    """One line a row, and nothing else: other programs read it."""
    passed = json.loads(CACHE_FILE.read_text("utf-8")) if CACHE_FILE.exists() else {}
    for line in ROWS_FILE.read_text("utf-8").splitlines():
        row = line.split("\t", 1)[0]
        tests = len(passed.get(row, []))
        print(f"{row} tested ({tests})" if tests else f"{row} open")


if __name__ == "__main__":
    main()
