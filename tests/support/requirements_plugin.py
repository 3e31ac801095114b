"""Records which rules of docs/rules.md have tests that passed.

`@pytest.mark.requirement("S16", "G1")` names the rules; an unknown one is an error. Each run
replaces what the cache says about the test functions that it ran, so runs add up.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

RULES_FILE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
CACHE_FILE = Path(".cache") / "requirements-passed.json"

PROPERTY = "requirement"
"""Name of the property of a report that holds a row."""

# row -> names of the test functions that passed last
Passed = dict[str, list[str]]


def known_rows() -> frozenset[str]:
    """The codes of all rules, such as `S16`."""
    text = RULES_FILE.read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE))


def merged(
    old: Mapping[str, Iterable[str]], rows_of: Mapping[str, frozenset[str]], passed: frozenset[str]
) -> Passed:
    """`old` without the functions that ran now (the keys of `rows_of`), and with those that passed."""
    new: defaultdict[str, set[str]] = defaultdict(set)
    for row, functions in old.items():
        new[row].update(set(functions) - rows_of.keys())
    for function in passed:
        for row in rows_of[function]:
            new[row].add(function)
    return {row: sorted(functions) for row, functions in sorted(new.items()) if functions}


def read_cache(path: Path) -> Passed:
    """What passed last; nothing if no test ran yet."""
    if not path.exists():
        return {}
    found: Passed = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_cache(path: Path, passed: Passed) -> None:
    """Replace the file in one step: several runs may share it."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(passed, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def rows_of_item(item: pytest.Item, known: frozenset[str]) -> frozenset[str]:
    """The rows that a test's markers name."""
    rows = frozenset(row for mark in item.iter_markers("requirement") for row in mark.args)
    unknown = sorted(row for row in rows if row not in known)
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid}: no rule {', '.join(unknown)} in docs/{RULES_FILE.name}; "
            "correct the marker, or add the rule there"
        )
    return rows


class RequirementRecorder:
    """One test session's outcomes by test function (all parameters of one together)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows_of: dict[str, frozenset[str]] = {}
        self._not_passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        function = _function_of(report.nodeid)
        rows = frozenset(str(row) for name, row in report.user_properties if name == PROPERTY)
        self._rows_of[function] = self._rows_of.get(function, frozenset()) | rows
        if not report.passed or hasattr(report, "wasxfail"):
            self._not_passed.add(function)

    def pytest_sessionfinish(self) -> None:
        if not self._rows_of:
            return
        cache = self._root / CACHE_FILE
        there = {
            row: [one for one in functions if (self._root / one.split("::")[0]).exists()]
            for row, functions in read_cache(cache).items()
        }
        passed = frozenset(self._rows_of.keys() - self._not_passed)
        write_cache(cache, merged(there, self._rows_of, passed))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rows go with the reports, which reach the recorder from the processes of pytest-xdist, too."""
    known = known_rows()
    for item in items:
        item.user_properties += [(PROPERTY, row) for row in sorted(rows_of_item(item, known))]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(RequirementRecorder(config.rootpath), "requirement-recorder")


def _function_of(nodeid: str) -> str:
    return nodeid.split("[", 1)[0]
