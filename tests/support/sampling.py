"""`make check` runs some of the many cases of a test; `make test` runs all, and of the slowest some.

With `--sampled` at most `USUAL` cases of each test are run, others each time.  `@pytest.mark.sampled(20)`
says another number, for a test whose cases are less alike, or take longer.  `sampled(0)` is for a test that
takes a second of processor time and adds little to its neighbours: it is left out.  hypothesis tries
`EXAMPLES`, where a test does not say how many.

With `--rotated` only a test with `@pytest.mark.rotated(8)` has so many of its cases, others each time: its cases
take many seconds each, and are alike. Of the files that are marked as a whole with `pytest.mark.in_turn`, and of the
single tests with that mark, a part is run, others each time: each needs a minute or more of a processor, and most of
what it proves has faster tests, too.

With `--concerned` the files of the changed packages are run, and of the others a part, others each time. Changed
is what differs from the commit before the last one. Files that are left out are not even imported.

The choice follows the seed of the random order, which is printed first: `--randomly-seed=SEED --sampled`
chooses the same again.
"""

import random
import subprocess
from collections.abc import Iterable
from math import ceil
from pathlib import Path, PurePath

import hypothesis
import pytest

USUAL = 2
"""Cases of a test that says nothing else."""

EXAMPLES = 10
"""Instead of a hundred."""

TURNS = 4
"""One of so many files and tests that take turns is run."""

UNIT = PurePath("tests/unit")
PRODUCT = PurePath("src/ganeti")
CHANGES = (
    ("git", "diff", "--name-only", "HEAD~1"),
    ("git", "ls-files", "--others", "--exclude-standard"),
)
CONCERNED = pytest.StashKey[frozenset[PurePath]]()


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are imported: a test has the profile of the moment when it is made."""
    if config.getoption("sampled"):
        hypothesis.settings.register_profile(
            "sampled", hypothesis.settings(), max_examples=EXAMPLES
        )
        hypothesis.settings.load_profile("sampled")
    if config.getoption("concerned"):
        config.stash[CONCERNED] = concerned_by(changed_files(config.rootpath))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sampled", action="store_true", help="of the cases of each test run some")
    parser.addoption(
        "--rotated", action="store_true", help="of the cases of tests marked as rotated run some"
    )
    parser.addoption(
        "--concerned",
        action="store_true",
        help="run the tests of changed packages, and some of the files of the others",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file of another package whose turn it is not."""
    concerned = config.stash.get(CONCERNED, None)
    if concerned is None or not collection_path.match("test_*.py"):
        return None
    name = PurePath(collection_path).relative_to(config.rootpath)
    if name.parent == UNIT or not concerned.isdisjoint((name, *name.parents)):
        return None
    dice = random.Random(f"{config.getoption('randomly_seed', 0)} {name}")
    return dice.randrange(TURNS) > 0 or None


def changed_files(top: Path) -> list[str]:
    """What differs from the commit before the last one; nothing where there is no such commit."""
    found: list[str] = []
    for command in CHANGES:
        done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
        found += done.stdout.splitlines()
    return found


def concerned_by(changed: Iterable[str]) -> frozenset[PurePath]:
    """The folders and files of tests that changed files concern."""
    found: set[PurePath] = set()
    for path in map(PurePath, changed):
        if path.is_relative_to(PRODUCT):
            found.add(UNIT / path.relative_to(PRODUCT).parts[0])
        elif path.is_relative_to(UNIT):
            found.add(path if path.name.startswith("test_") else path.parent)
    return frozenset(found - {UNIT})


def chosen(cases: Iterable[str], count: int, seed: object) -> frozenset[str]:
    """`count` of the cases of one test, the same for the same seed, in whatever order they come."""
    names = sorted(cases)
    return frozenset(random.Random(f"{seed} {names[0]}").sample(names, min(count, len(names))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what `-m` leaves. The processes of pytest-xdist share the seed, and so choose the same."""
    seed = config.getoption("randomly_seed", 0)
    cases: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for item in items:
        if (count := _most(item)) is not None:
            test = item.nodeid.split("[", 1)[0]
            cases.setdefault(test, []).append(item.nodeid)
            counts[test] = count
    left_out = {
        case
        for test, all_ in cases.items()
        if len(all_) > counts[test]
        for case in set(all_) - chosen(all_, counts[test], seed)
    }
    if config.getoption("rotated"):
        left_out |= _waiting(items, seed)
    if not left_out:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _waiting(items: Iterable[pytest.Item], seed: object) -> set[str]:
    """The tests whose turn it is not: a file whose tests share what is slow takes its turn as a whole."""
    groups: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("in_turn"):
            is_alone = any(one.name == "in_turn" for one in item.own_markers)
            group = item.nodeid.split("[" if is_alone else "::", 1)[0]
            groups.setdefault(group, []).append(item.nodeid)
    if not groups:
        return set()
    now = chosen(groups, ceil(len(groups) / TURNS), seed)
    return {test for group, tests in groups.items() if group not in now for test in tests}


def _most(item: pytest.Item) -> int | None:
    """How many cases of its test are run; None: all."""
    for name in ("sampled", "rotated"):
        if item.config.getoption(name):
            marker = item.get_closest_marker(name)
            return marker.args[0] if marker else USUAL if name == "sampled" else None
    return None
