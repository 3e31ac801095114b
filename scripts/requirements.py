"""Print each rule of docs/rules.md that tests can prove: `S16 tested (3)` or `S16 open`."""

import json
import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RULES_FILE = TOP / "docs" / "rules.md"
CACHE_FILE = TOP / ".cache" / "requirements-passed.json"


def main() -> None:
    """One line a rule, and nothing else: other programs read it."""
    passed = json.loads(CACHE_FILE.read_text("utf-8")) if CACHE_FILE.exists() else {}
    for rule in re.findall(r"^\| ([SGFAD]\d+) \|", RULES_FILE.read_text("utf-8"), re.MULTILINE):
        tests = len(passed.get(rule, []))
        print(f"{rule} tested ({tests})" if tests else f"{rule} open")


if __name__ == "__main__":
    main()
